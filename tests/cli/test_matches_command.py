"""`nearmt matches`, and `nearmt translate --exact reuse`, as a user runs them."""

import json

import pytest

from command_line import assert_one_sentence, nearmt
from nearmt.corpus import SentencePair
from nearmt.store import Store

STORED = "die neue tabelle zeigt die zelle heute oft ."
TARGET = "A stored, odd translation!"


@pytest.fixture
def store(store_copy, toy_model):
    pair = SentencePair(STORED, TARGET, "u1", "client-x", "2024-05-01T00:00:00Z")
    Store(store_copy, model=toy_model).add([pair])
    return store_copy


def test_matches_are_printed_best_first(store):
    code, out, err = nearmt("matches", store, STORED.replace("heute", "morgen"), "--limit", 2)
    assert (code, err) == (0, "")
    first, second = out.splitlines()
    assert first == f" 87 %  {STORED} → {TARGET}  [client-x u1]"
    assert int(second[:3]) <= 87
    code, out, _ = nearmt("matches", store, STORED, "--minimum", 100)
    assert out == f"100 %  {STORED} → {TARGET}  [client-x u1]\n"


def test_several_texts_are_printed_one_after_the_other(store):
    code, out, _ = nearmt("matches", store, STORED, "nothing like it", "--minimum", 100)
    assert code == 0
    assert (
        out
        == f"{STORED}\n\n100 %  {STORED} → {TARGET}  [client-x u1]\n\nnothing like it\n\nno match of 100 % or more\n"
    )


def test_matches_as_json(store):
    code, out, _ = nearmt("matches", store, STORED, "nothing like it", "--json", "--only", "client-*")
    assert code == 0
    first, second = json.loads(out)
    assert second == {"text": "nothing like it", "matches": []}
    assert first["text"] == STORED
    (match,) = first["matches"]
    assert match.pop("sentence_id") == Store(store).manifest.num_sentences - 1
    assert match == {
        "source": STORED,
        "target": TARGET,
        "percent": 100,
        "unit_id": "u1",
        "origin": "client-x",
        "changed_at": "2024-05-01T00:00:00Z",
        "store": str(store),
    }


def test_matches_need_no_model(store, monkeypatch):
    monkeypatch.setattr("nearmt.models.Seq2Seq.load", None)
    assert nearmt("matches", store, STORED)[0] == 0


def test_matches_in_several_stores_count_a_pair_once(client, store):
    code, out, _ = nearmt("matches", client.store, STORED, "--also", store, "--json", "--limit", 50)
    found = [(match["source"], match["target"]) for match in json.loads(out)[0]["matches"]]
    assert code == 0
    assert found[0] == (STORED, TARGET)
    assert len(found) == len(set(found))


def test_wrong_calls_fail_with_one_sentence(store, tmp_path):
    assert_one_sentence(nearmt("matches", store, " "), "the text is empty$")
    assert_one_sentence(nearmt("matches", tmp_path / "nosuch.store", "x"), "nosuch.store does not exist$")
    assert_one_sentence(nearmt("matches", store, "x", "--since", "soon"), "soon is not a date")
    assert nearmt("matches", store)[0] == 2
    assert nearmt("matches", store, "x", "--limit", 0)[0] == 2
    assert nearmt("matches", store, "x", "--minimum", 101)[0] == 2
    result = nearmt("translate", store, "--exact", "maybe", stdin=STORED)
    assert_one_sentence(result, "--exact takes translate or reuse, not 'maybe'$")


def test_a_filter_that_matches_nothing_gives_a_warning(store):
    code, out, err = nearmt("matches", store, STORED, "--only", "nosuch")
    assert (code, out) == (0, "no match of 50 % or more\n")
    assert "no unit of the memory matches the filter" in err


def test_translate_reuses_stored_translations_and_says_how_many(store):
    lines = f"{STORED}\n\nheute zeigt die zelle die neue tabelle .\n"
    code, out, err = nearmt("translate", store, "--exact", "reuse", stdin=lines)
    assert code == 0
    assert out.splitlines()[:2] == [TARGET, ""]
    assert "spreadsheet" in out.splitlines()[2]
    assert "1 of 2 sentences was reused from the memory" in err
    assert "reused" not in nearmt("translate", store, "--exact", "reuse", "-q", stdin=lines)[2]
    code, out, err = nearmt("translate", store, stdin=lines)
    assert TARGET not in out
    assert "reused" not in err


def test_json_names_the_match(store):
    lines = f"{STORED}\nheute zeigt die zelle die neue tabelle .\n"
    code, out, _ = nearmt("translate", store, "--exact", "reuse", "--json", "--n-best", 2, "-q", stdin=lines)
    assert code == 0
    first, second = map(json.loads, out.splitlines())
    assert first == {
        "source": STORED,
        "text": TARGET,
        "score": 0.0,
        "match": {"percent": 100, "source": STORED, "origin": "client-x"},
    }
    assert "match" not in second
    assert len(second["alternatives"]) == 1


def test_units_of_files_are_reused(store, tmp_path):
    path, out = tmp_path / "in.po", tmp_path / "out.po"
    path.write_text(f'msgid "{STORED}"\nmsgstr ""\n\nmsgid "die zelle zeigt ."\nmsgstr ""\n', encoding="utf-8")
    code, _, err = nearmt("translate", store, path, "-o", out, "--exact", "reuse")
    assert code == 0
    assert f'msgstr "{TARGET}"' in out.read_text(encoding="utf-8")
    assert "2 units filled" in err
    assert "1 of 2 sentences was reused from the memory" in err


def test_a_unit_of_several_sentences_is_reused_as_a_whole(store, toy_model, tmp_path):
    source, target = "Die Zelle zeigt. Die Tabelle zeigt.", "Both at once"
    Store(store, model=toy_model).add([(source, target)])
    path, out = tmp_path / "in.po", tmp_path / "out.po"
    path.write_text(f'msgid "{source}"\nmsgstr ""\n', encoding="utf-8")
    code, _, err = nearmt("translate", store, path, "-o", out, "--exact", "reuse")
    assert code == 0
    assert f'msgstr "{target}"' in out.read_text(encoding="utf-8")
    assert "1 of 1 sentence was reused from the memory" in err
    code, _, err = nearmt("translate", store, "-", "--exact", "reuse", stdin="die zelle zeigt nichts")
    assert code == 0
    assert "0 of 1 sentence was reused from the memory" in err
    assert nearmt("translate", store, path, "-o", out, "--force")[0] == 0
    assert target not in out.read_text(encoding="utf-8")
