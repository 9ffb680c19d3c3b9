"""The options for keys and retrieval: what they build, what is shown, and one sentence for bad values."""

import contextlib
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from command_line import assert_one_sentence, nearmt
from nearmt.cli.info_output import warn_low_recall
from nearmt.datastore import Manifest

TEXT = "die neue tabelle zeigt die zelle ."
GOLDEN = Path(__file__).parents[1] / "golden"


def info(folder: Path) -> dict[str, Any]:
    code, out, err = nearmt("info", folder, "--json")
    assert code == 0, err
    described: dict[str, Any] = json.loads(out)
    return described


def built(client, out: Path, *options: object) -> dict[str, Any]:
    code, _, err = nearmt("build", client.memory, "--model", client.model, "--out", out, "--no-train", "-q", *options)
    assert code == 0, err
    return info(out)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), ("int8", 64, "sentences", None)),
        (("--dims", "16"), ("int8", 16, "sentences", None)),
        (("--dims", "full", "--keys", "float16"), ("float16", 64, "sentences", None)),
        (("--dims", "24", "--keys", "float32", "--retrieval", "tokens"), ("float32", 24, "tokens", "Flat")),
        (("--dims", "16", "--retrieval", "both"), ("int8", 16, "both", "Flat")),
        (("--index", "IVF8,Flat"), ("int8", 64, "tokens", "IVF8,Flat")),
        (("--dims", "16", "--index", "lists:8"), ("int8", 16, "tokens", "lists:8")),
        (("--dims", "16", "--index", "lists", "--retrieval", "both"), ("int8", 16, "both", "lists")),
    ],
)
def test_build_options_decide_keys_and_retrieval(client, tmp_path, options, expected):
    described = built(client, tmp_path / "s.store", *options)
    index = described["index"]
    found = (described["keys"], described["dims"], described["retrieval"], index and index["factory"])
    assert found == expected
    assert described["sentence_index"]["num_sentences"] == 500
    item = {"int8": 1, "float16": 2, "float32": 4}[described["keys"]]
    keys = tmp_path / "s.store" / "data-000001" / f"keys.{described['keys']}"
    assert keys.stat().st_size == described["entries"] * described["dims"] * item
    vanilla = ("--method", "vanilla", "--k", "4", "--temperature", "0.1", "--share", "0.9")
    code, out, err = nearmt("translate", tmp_path / "s.store", "-", "-q", *vanilla, stdin=TEXT)
    assert code == 0, err
    assert "spreadsheet" in out
    code, out, _ = nearmt("info", tmp_path / "s.store")
    assert code == 0
    assert f"retrieval    {described['retrieval']}" in out
    assert f"keys         {described['keys']}, {described['dims']} dimensions" in out
    assert "500 sentences" in out
    assert ("tokens: " in out) == (index is not None)


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        (("--dims", "many"), "--dims takes a number or full, not many"),
        (("--dims", "0"), "`?(--)?dims`? must be at least 1, not 0"),
        (("--dims", "-3"), "dims"),
        (("--keys", "int4"), "must be one of .*int8.*, not int4"),
        (("--retrieval", "words"), "must be one of tokens, sentences, both, not words"),
        (("--retrieval", "sentences", "--index", "IVF64,Flat"), "for an index of tokens: .*tokens or both"),
        (("--retrieval", "sentences", "--memory", "1G"), "for an index of tokens: .*tokens or both"),
        (("--probes", "4"), "--probes and --rerank are for an index of tokens: set --retrieval to tokens or both"),
        (("--retrieval", "sentences", "--rerank", "0"), "for an index of tokens: .*tokens or both"),
        (("--index", "lists:0"), "--index must be lists or lists:NUMBER, with the number of lists, not lists:0"),
        (("--index", "lists:x"), "not lists:x"),
        (("--index", "lists", "--rerank", "96"), "--rerank is not for lists, whose distances are exact: leave it out"),
        (("--index", "lists", "--memory", "1G"), "--memory is not for lists, which always stay on disk: leave it out"),
        (("--index", "lists", "--keys", "float16"), "--index lists needs .*int8 with reduced dimensions, not float16"),
        (("--index", "lists", "--dims", "full"), "--index lists needs .*reduced dimensions, not whole states"),
        (("--index", "lists"), "not whole states"),  # the toy model's states have 64 dimensions
    ],
)
def test_bad_values_of_build_are_refused_in_one_sentence(client, tmp_path, options, pattern):
    out = tmp_path / "s.store"
    result = nearmt("build", client.memory, "--model", client.model, "--out", out, "-q", *options)
    assert_one_sentence(result, pattern)
    assert not list(tmp_path.iterdir()), "refused before any work"


def test_an_index_can_be_changed_to_another_retrieval_and_back(store_copy):
    code, out, _ = nearmt("index", store_copy, "--retrieval", "both", "--index", "IVF8,Flat", "-q")
    assert code == 0
    assert "500 sentences, tokens: IVF8,Flat" in out
    manifest = Manifest.load(store_copy)
    assert (manifest.retrieval, manifest.index.factory) == ("sentences", "IVF8,Flat"), "as its networks were trained"
    code, out, _ = nearmt("index", store_copy, "--retrieval", "tokens", "--probes", "4", "-q", "--json")
    assert code == 0
    described = json.loads(out)
    assert (described["retrieval"], described["index"]["factory"]) == ("tokens", "IVF8,Flat")
    assert set(described["sentence_index"]["files"]) <= {path.name for path in store_copy.iterdir()}
    assert_one_sentence(nearmt("translate", store_copy, "-", "-q", stdin=TEXT), "nearmt train")
    code, out, _ = nearmt("index", store_copy, "--retrieval", "sentences", "-q")
    assert (code, out.strip()) == (0, "500 sentences")
    assert Manifest.load(store_copy).index is None
    assert not list(store_copy.glob("*.faiss"))
    code, out, _ = nearmt("translate", store_copy, "-", "-q", stdin=TEXT)
    assert code == 0
    assert "spreadsheet" in out


def test_an_index_of_tokens_is_built_where_one_of_its_settings_is_given(store_copy):
    code, out, _ = nearmt("index", store_copy, "--index", "IVF8,Flat", "-q")
    assert code == 0
    assert "tokens: IVF8,Flat" in out
    assert Manifest.load(store_copy).retrieval == "tokens"


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        (("--retrieval", "words"), "must be one of tokens, sentences, both, not words"),
        (("--retrieval", "sentences", "--index", "IVF64,Flat"), "for an index of tokens"),
        (("--retrieval", "sentences", "--memory", "1G"), "for an index of tokens"),
        (("--probes", "4"), "--probes and --rerank are for an index of tokens: set --retrieval to tokens or both"),
    ],
)
def test_bad_values_of_index_are_refused_in_one_sentence(store_copy, options, pattern):
    before = sorted(path.name for path in store_copy.iterdir())
    assert_one_sentence(nearmt("index", store_copy, "-q", *options), pattern)
    assert sorted(path.name for path in store_copy.iterdir() if not path.name.endswith("lock")) == [
        name for name in before if not name.endswith("lock")
    ]


def test_an_index_can_be_changed_to_lists_and_back(client, tmp_path, monkeypatch):
    store = tmp_path / "s.store"
    built(client, store, "--dims", "16", "--index", "IVF8,Flat", "--probes", "5", "--rerank", "64")

    def changed(*options: object) -> tuple[str, int, int]:
        code, out, err = nearmt("index", store, "-q", "--json", *options)
        assert code == 0, err
        index = json.loads(out)["index"]
        assert index["files"].keys() == {path.name for path in store.glob("index-*")} - {
            *Manifest.load(store).sentence_index.files
        }
        return index["factory"], index["num_probes"], index["reranked"]

    assert changed("--index", "lists:6") == ("lists:6", 4, 0), "probes and candidates were for the other kind"
    assert changed("--probes", "5") == ("lists:6", 5, 0)
    code, out, _ = nearmt("info", store)
    assert code == 0
    assert "tokens: lists:6, 5 lists probed\n" in out
    assert "recall" in out
    assert changed("--index", "lists:7") == ("lists:7", 5, 0)
    assert_one_sentence(nearmt("index", store, "-q", "--rerank", "9"), "--rerank is not for lists")
    assert_one_sentence(nearmt("index", store, "-q", "--memory", "1G"), "--memory is not for lists")
    assert changed("--index", "faiss") == ("Flat", 32, 96)
    monkeypatch.setattr("nearmt.retrieval.lists.building._FEWEST_ENTRIES", 100)
    assert changed("--index", "lists") == ("lists", 4, 0)
    assert changed("--index", "faiss") == ("Flat", 32, 96), "not lists, although they would be chosen by size"
    assert changed() == ("Flat", 32, 96)
    code, out, err = nearmt("index", store, "-q", "--index", "lists")
    assert (code, out.strip()) == (0, "500 sentences, tokens: lists, 4 lists probed")
    code, _, err = nearmt("add", store, client.test, "-q")
    assert code == 0, err
    vanilla = ("--method", "vanilla", "--k", "4", "--temperature", "0.1", "--share", "0.9")
    code, out, err = nearmt("translate", store, "-", "-q", *vanilla, stdin=TEXT)
    assert code == 0, err
    assert "spreadsheet" in out


def test_float_keys_are_not_indexed_in_lists(store_copy):
    before = sorted(path.name for path in store_copy.glob("index-*"))
    result = nearmt("index", store_copy, "-q", "--index", "lists")
    assert_one_sentence(result, "--index lists needs .*reduced dimensions, not whole states")
    assert sorted(path.name for path in store_copy.glob("index-*")) == before


def test_low_recall_is_no_reason_to_change_an_index_that_a_store_does_not_have():
    poor = {"num_queries": 9, "recall": 0.2, "mass": 0.3, "k": 4}
    for retrieval, index, is_warned in (("sentences", None, False), ("tokens", {}, True), ("sentences", {}, False)):
        with contextlib.redirect_stderr(io.StringIO()) as said:
            warn_low_recall({"retrieval": retrieval, "index": index, "adaptation": {"recall": poor}})
        assert ("--probes" in said.getvalue()) == is_warned


def test_verify_names_a_damaged_file_of_the_sentence_index(store_copy):
    (path,) = store_copy.glob("index-*-sentences-postings.npy")
    path.write_bytes(path.read_bytes()[:-4])
    assert_one_sentence(nearmt("verify", store_copy, "-q"), f"{path.name} was changed")
    assert_one_sentence(nearmt("translate", store_copy, "-", "-q", stdin=TEXT), f"{path.name}.*verify")
    code, _, err = nearmt("verify", store_copy, "--repair", "-q")
    assert code == 0, err
    code, out, _ = nearmt("translate", store_copy, "-", "-q", stdin=TEXT)
    assert code == 0
    assert "spreadsheet" in out


def test_a_store_of_format_2_gets_an_index_of_sentences(tmp_path):
    folder = Path(shutil.copytree(GOLDEN / "store", tmp_path / "old.store"))
    before = info(folder)
    assert (before["retrieval"], before["sentence_index"]) == ("tokens", None)
    assert json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["format"] == 2
    code, _, err = nearmt("index", folder, "--retrieval", "sentences", "-q")
    assert code == 0, err
    after = info(folder)
    assert (after["retrieval"], after["index"]) == ("sentences", None)
    assert after["sentence_index"]["num_sentences"] == Manifest.load(folder).num_sentences
    assert json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["format"] == 3
    assert nearmt("verify", folder, "-q")[0] == 0
