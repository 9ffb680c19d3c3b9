"""Files to fill, and a helper that fills them; shared by the tests of this folder."""

from pathlib import Path

from nearmt.corpus.languages import LanguagePair
from nearmt.documents import Summary, translate_document

DE_EN = LanguagePair("de", "en")


def shout(texts):
    return [text.upper() for text in texts]


class Filler:
    """Fills a file with the given name and content; returns its new bytes and the summary."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, name, content, translate=shout, languages=DE_EN) -> tuple[bytes, Summary]:
        path, out = self._folder / name, self._folder / f"out-{name}"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        out.unlink(missing_ok=True)
        summary = translate_document(path, out, translate, languages)
        assert not list(self._folder.glob(".*"))  # no unfinished file is left
        return out.read_bytes(), summary


XLIFF_1 = """<?xml version='1.0'  encoding="UTF-8"?>\r
<!-- Grüße -->\r
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">\r
 <file original='a.html' source-language="de" target-language="en-US" datatype="html"><body>\r
  <trans-unit  id="1" resname='x &amp; y'>\r
   <source>Die &quot;Datei&quot; &#252;ber <g id="1">%s</g>&#160;l&#xF6;schen.</source>\r
   <note>Nicht <b>anfassen</b></note>\r
  </trans-unit>\r
  <trans-unit id="2"><source>Fertig</source><target state="translated">Done</target></trans-unit>\r
  <trans-unit id="2b"><source>Still</source><target state="final"></target></trans-unit>\r
  <trans-unit id="3" approved="yes"><source>Gut</source><target/></trans-unit>\r
  <trans-unit id="4" translate="no"><source>Fest</source></trans-unit>\r
  <group translate="no"><trans-unit id="4b"><source>Fest</source></trans-unit>\r
   <trans-unit id="4c" translate="yes"><source>Lose</source></trans-unit></group>\r
  <trans-unit id="5"><source>Leer</source><target xml:lang="en" state='new' /><alt-trans><target>Alt</target></alt-trans></trans-unit>\r
  <trans-unit id="6"><source>Kopie</source><target state="needs-translation">Kopie</target></trans-unit>\r
  <trans-unit id="7"><source>OK</source><target>OK</target></trans-unit>\r
  <trans-unit id="8"><source> </source></trans-unit>\r
  <trans-unit id="9"><source><![CDATA[Wert <b>fett</b> & mehr]]></source></trans-unit>\r
 </body></file>\r
 <file original="b" source-language="de-DE"><body>
  <trans-unit id="1"><source>Bild <ph id="2">&lt;img alt="<sub>Ein Hund</sub>"/&gt;</ph> hier</source></trans-unit>
 </body></file>
</xliff>"""  # noqa: E501

XLIFF_2 = """\ufeff<?xml version="1.0"?>
<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.1" srcLang="de">
  <file id="f"><unit id="1">
      <originalData><data id="d">&lt;br/&gt;</data></originalData>
      <segment id="s1">
        <source>Ein <pc id="1">neues</pc> Wort<ph id="2" dataRef="d"/></source>
      </segment>
      <ignorable><source> </source></ignorable>
      <segment state="final"><source>Fertig</source><target>Done</target></segment>
      <segment state="initial"><source>Kopie</source><target>Kopie</target></segment>
      <segment><source>Da</source><target>There</target></segment>
    </unit>
    <unit id="2" translate="no"><segment><source>Fest</source></segment></unit>
    <unit id="3"><segment><source><mrk id="m" translate="no">Fest</mrk> und <sc id="1"/>lose<ec startRef="1"/>.</source></segment></unit>
  </file>
</xliff>
"""  # noqa: E501

PO = r"""# Übersetzung
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Language: en\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"

#. Hinweis
#: a.c:1
msgid "&Datei \"%s\" öffnen"
msgstr ""

#: a.c:2
#, c-format
msgctxt "Menü"
msgid ""
"Erste Zeile.\n"
"Zweite %d Zeile.\n"
msgstr ""
msgid "Fertig"
msgstr "Done"

#, fuzzy
#| msgid "Alt"
msgid "Neu"
msgstr "Old"

#| msgid "Alt"
msgid "%d Tabelle"
msgid_plural "%d Tabellen"
msgstr[0] ""
msgstr[1] ""

#~ msgid "Weg"
#~ msgstr ""
"""

TMX = """<?xml version="1.0" encoding="ISO-8859-1"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="*all*" adminlang="en"/><body>
  <tu tuid="1">
    <tuv xml:lang="DE-de"><seg>Größe <bpt i="1">&lt;b></bpt>neu<ept i="1">&lt;/b></ept></seg></tuv>
  </tu>
  <tu><tuv xml:lang="de"><seg>Da</seg></tuv><tuv xml:lang="EN-gb"><seg>There</seg></tuv></tu>
  <tu><tuv xml:lang="de"><seg>Leer</seg></tuv><tuv xml:lang="EN-gb"><seg></seg></tuv></tu>
  <tu><tuv xml:lang="fr"><seg>Rien</seg></tuv></tu>
</body></tmx>
"""
