"""Tags and placeholders survive translation, whatever the translator does."""

import re
import time
from collections import Counter
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nearmt.errors import MarkupError, SettingError
from nearmt.markup import XML, Marked, rules_for, translate_marked, translate_with_ways
from nearmt.markup.rules import Kind
from properties import examples

TRANSLATORS = {
    "identity": lambda text: text,
    "upper": str.upper,
    "reverses": lambda text: " ".join(reversed(text.split())),
    "drops": lambda text: " ".join(text.split()[::2]),
    "nothing": lambda text: "",
    "hallucinates": lambda text: f"<b>{text} {{0}} %s </g> <x/> &amp; &Foo ]]> \\n",
    "repeats": lambda text: f"{text} {text}",
    "control": lambda text: f"\x0b{text}\x00",
}


def each(name):
    return lambda texts: [TRANSLATORS[name](text) for text in texts]


def answers(**known):
    """A translator that knows some sentences and shouts the others."""
    table = {key.replace("_", " "): value for key, value in known.items()}
    return lambda texts: [table.get(text, text.upper()) for text in texts]


WORDS = ["die", "Datei", "öffnen", "z. B.", "Ende.", "neu!", "„Zitat“", "你好。"]
PLACEHOLDERS = ["%s", "{0}", "%(name)s", "${x}", "{{y}}", "%1$d", "\\n", "https://a.de/b?c=1&d", "me@x.de"]
SIGNS_AND_SPACES = ["1 < 2", "5 %", "&", "a&b", "\n", "  ", "\u00a0"]
PLAIN = st.lists(st.sampled_from(WORDS + PLACEHOLDERS + SIGNS_AND_SPACES), max_size=8).map(" ".join)
ESCAPED = PLAIN.map(lambda text: text.replace("&", "&amp;").replace("<", "&lt;"))


def xml_with(text, tags=("g", "b", "mrk")):
    def extend(inner):
        return st.lists(inner, max_size=4).map("".join) | st.tuples(st.sampled_from(tags), inner).map(
            lambda pair: f'<{pair[0]} id="1">{pair[1]}</{pair[0]}>'
        )

    single = st.sampled_from(
        ['<x id="5"/>', '<x id="6"></x>', "<!-- c -->", "&lt;b&gt;", "&lt;/b&gt;", "<![CDATA[a & b]]>"]
    )
    return st.recursive(text | single, extend, max_leaves=12)


def tags_of(text):
    return Counter(re.findall(r"<!--.*?-->|<!\[CDATA\[|\]\]>|<[^<>]*>|&lt;/?b&gt;", text))


def placeholders_of(text):
    return Counter(re.findall(r"%s|\{0\}|%\(name\)s|\$\{x\}|\{\{y\}\}|%1\$d|\\n|https://\S*?1&d|me@x\.de", text))


@pytest.mark.parametrize("name", TRANSLATORS)
@examples(60)
@given(text=xml_with(ESCAPED))
def test_xml_keeps_every_tag_and_stays_well_formed(name, text):
    (result,) = translate_marked([text], each(name), "xml", language="de")
    assert tags_of(result) == tags_of(text)
    translate_marked([result], each("identity"), "xml")  # raises if it is not well-formed


@pytest.mark.parametrize("name", TRANSLATORS)
@examples(60)
@given(text=PLAIN)
def test_text_keeps_every_placeholder_and_the_space_around(name, text):
    (result,) = translate_marked([text], each(name), "text", language="de")
    assert placeholders_of(result) == placeholders_of(text)
    assert result[: len(result) - len(result.lstrip())] == text[: len(text) - len(text.lstrip())]
    assert result[len(result.rstrip()) :] == text[len(text.rstrip()) :]
    assert re.findall(r"\n", result) == re.findall(r"\n", text)
    assert name != "identity" or result == text


class TagCounter(HTMLParser):
    """Another reader's view of the tags."""

    def __init__(self, text):
        super().__init__()
        self.tags: Counter[object] = Counter()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags[tag, str(attributes)] += 1

    def handle_endtag(self, tag):
        self.tags[f"/{tag}"] += 1


@pytest.mark.parametrize("name", TRANSLATORS)
@examples(40)
@given(text=xml_with(ESCAPED, ("p", "b", "span", "li", "code")))
def test_html_keeps_every_tag(name, text):
    text = text.replace("<![CDATA[", "").replace("]]>", "")
    (result,) = translate_marked([text], each(name), "html", language="de")
    assert TagCounter(result).tags == TagCounter(text).tags


@examples(200)
@given(text=st.text(alphabet="<>/ab =\"'&;!-[]?x\n", max_size=60))
def test_broken_html_is_kept(text):
    assert translate_marked([text], each("identity"), "html", language="de") == [text]


@examples(100)
@given(text=xml_with(ESCAPED))
@example(text="die die die die&lt;b&gt;die")
def test_identical_translation_changes_nothing(text):
    assert translate_marked([text], each("identity"), "xml", language="de") == [text]


def test_placeholders_stay_in_the_sentence_if_they_are_copied():
    (kept,) = translate_with_ways(["%s von {0}"], lambda texts: [text.replace("von", "of") for text in texts])
    assert (kept.text, kept.way) == ("%s of {0}", "whole")
    (lost,) = translate_with_ways(["%s von {0} hier"], lambda texts: [re.sub(r"[%{].", "", t).upper() for t in texts])
    assert (lost.text, lost.way) == ("%s VON {0} HIER", "pieces")


def test_icu_messages_and_accelerators_are_kept():
    icu = "{n, plural, one {# Datei} other {# Dateien}} gefunden"
    assert translate_marked([icu], each("upper")) == ["{n, plural, one {# Datei} other {# Dateien}} GEFUNDEN"]
    labels = ["&Datei", "D&atei öffnen", "~Ansicht", "_Bearbeiten", "R&D und Q&A", "a_b"]
    assert translate_marked(labels, each("upper")) == [
        "&DATEI",
        "&DATEI ÖFFNEN",
        "~ANSICHT",
        "_BEARBEITEN",
        "R&D UND Q&A",
        "A_B",
    ]


def test_code_and_hidden_html_is_not_translated():
    page = (
        "<!DOCTYPE html><head><title>Titel &amp; mehr</title><style>p > b {}</style></head><p>Eins<br>zwei"
        '<script>if (a < b) "</p>"</script><span translate="no">Fest</span> und <i class="x notranslate">so</i> drei'
        "<p>Offen <code>rm -rf</code> &nbsp; <!-- Notiz --> Ende<img src='a>b'></div>"
    )
    (result,) = translate_marked([page], each("upper"), "html", language="de")
    assert result == (
        "<!DOCTYPE html><head><title>TITEL &amp; MEHR</title><style>p > b {}</style></head><p>EINS<br>ZWEI"
        '<script>if (a < b) "</p>"</script><span translate="no">Fest</span> UND <i class="x notranslate">so</i> DREI'
        "<p>OFFEN <code>rm -rf</code> &nbsp; <!-- Notiz --> ENDE<img src='a>b'></div>"
    )


def test_markup_invented_by_the_model_does_not_become_a_tag():
    assert translate_marked(["Kleiner"], lambda texts: ["1 < 2 & <script>"], "html") != ["1 < 2 & <script>"]
    (result,) = translate_marked(["Kleiner"], lambda texts: ["1 < 2 & 3"], "html")
    assert result == "1 &lt; 2 &amp; 3"


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ("<g>Datei", "mismatched"),
        ("a < b", "not well-formed"),
        ("a & b", "not well-formed"),
        ("</x>", "mismatched"),
        ("&nbsp;", "undefined"),
        ("\x00", "not well-formed"),
        ("<x a=1/>", "not well-formed"),
        ('<!DOCTYPE r [<!ENTITY a "b">]><r>&a;</r>', "declares the XML entity"),
    ],
)
def test_broken_xml_is_a_clear_error(broken, why):
    with pytest.raises(MarkupError, match=why):
        translate_marked([broken], each("identity"), "xml")


def test_elements_can_be_ignored_and_split_at():
    rules = rules_for("xml", ignored=["n"], splitting=["s"])
    assert translate_marked(["<s>ein</s><n>zwei</n>drei"], each("upper"), rules) == ["<s>EIN</s><n>zwei</n>DREI"]
    with pytest.raises(SettingError, match="unknown kind of markup"):
        rules_for("rtf")
    assert rules_for("xml") == XML


def test_translate_is_called_at_most_twice():
    calls = []

    def translate(texts):
        calls.append(len(texts))
        return [text.upper() for text in texts]

    translate_marked(["Ein <b>Wort</b> %s. Noch eins."] * 50 + ["Ganz %d anders"], translate, "xml", language="de")
    assert calls[0] == 4
    assert len(calls) == 2


HOSTILE: dict[str, tuple[Kind, str]] = {
    "deep": ("xml", "<b>" * 10_000 + "tief" + "</b>" * 10_000),
    "deep without words": ("xml", "wort " + "<b>" * 10_000 + "</b>" * 10_000 + " wort"),
    "deep with words": ("xml", "a <b>" * 2_500 + "tief" + "</b>" * 2_500),
    "many": ("xml", 'wort <x id="1"/> ' * 7_500),
    "line": ("text", "wort " * 200_000),
    "letters": ("text", "a" * 1_000_000),
    "percent": ("text", "%" * 75_000),
    "braces": ("text", "{a, plural, " * 7_500),
    "open comments": ("html", "<!-- " * 25_000),
    "open quotes": ("html", "<a \"'" * 25_000),
    "open tags": ("html", "<a " * 25_000),
    "stray ends": ("html", "<i>" * 7_500 + "</b>" * 7_500 + "</i>" * 10),
    "loose ends": ("text", "".join(f"<a{n}>" for n in range(5_000)) + "</b> x" * 5_000),
    "scripts": ("html", "<script>" * 7_500),
    "entities": ("html", "&amp;" * 25_000 + "&" * 25_000 + " Wort. Satz. " * 5000),
    "at signs": ("text", "a.a@" * 25_000),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_takes_linear_time(name):
    kind, text = HOSTILE[name]
    begun = time.process_time()
    (result,) = translate_marked([text], each("upper"), kind, language="de")
    assert time.process_time() - begun < 5
    assert len(result) >= len(text) * 0.9


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("text", " Eins %s. Zwei! ", " ONE %s & two "),
        ("xml", "Eins %s. Zwei!", "ONE %s &amp; two"),
        ("text", "Eins %s. Drei!", "EINS %s. DREI!"),  # not known
        ("text", "Eins %s.\nZwei!", "EINS %s.\nZWEI!"),  # would lose a line break
        ("xml", "Eins <b>%s</b>. Zwei!", "EINS <b>%s</b>. ZWEI!"),  # would lose tags
        ("text", "Eins. Zwei {0}!", "EINS. ZWEI {0}!"),  # its known translation lost a placeholder
        ("text", "Eins!", "EINS!"),  # one sentence is left to `translate`
    ],
)
def test_a_text_of_several_sentences_may_be_known_as_a_whole(kind, text, expected):
    known = {
        "Eins %s. Zwei!": "ONE %s & two",
        "Eins %s.\nZwei!": "one line",
        "Eins. Zwei {0}!": "none",
        "Eins!": "one",
    }
    found = translate_with_ways(
        [text], lambda texts: [each.upper().replace("%S", "%s") for each in texts], kind, language="de", reuse=known.get
    )
    assert found == [Marked(expected, "whole")]
