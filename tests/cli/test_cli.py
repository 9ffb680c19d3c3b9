"""The commands as a user runs them: results on standard output, one sentence on standard error, exit codes."""

import gzip
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import toy

from command_line import assert_one_sentence, nearmt
from nearmt.cli.output import _LineReporter
from nearmt.store import Store
from quick import QUICK


def test_build_train_and_translate(client, tmp_path):
    store = tmp_path / "client.store"
    code, out, _ = nearmt("build", client.memory, "--model", client.model, "--out", store, "--no-train")
    assert code == 0
    assert "500 sentences" in out
    assert "not trained" in out
    code, out, _ = nearmt("train", store, client.dev, "--temperature", "0.1", "--max-k", "8", "--steps", "600")
    assert code == 0
    assert "K 8, T 0.1" in out
    lines = "die neue tabelle zeigt die zelle .\n\nheute zeigt die zelle die neue tabelle ."
    code, out, err = nearmt("translate", store, "-", "--quiet", stdin=lines)
    assert code == 0
    assert err == ""
    assert out.split("\n")[1] == ""
    assert out.count("\n") == 3
    assert out.count("spreadsheet") == 2


def test_translate_writes_files_and_json(client, tmp_path):
    text, out = tmp_path / "in.de", tmp_path / "out.jsonl"
    text.write_text("die neue tabelle zeigt die zelle .\n", encoding="utf-8")
    code, printed, _ = nearmt("translate", client.store, text, "-o", out, "--json", "--n-best", "2", "-q")
    assert (code, printed) == (0, "")
    result = json.loads(out.read_text(encoding="utf-8"))
    assert "spreadsheet" in result["text"]
    assert len(result["alternatives"]) == 1


def test_failed_translation_leaves_the_output_file_unchanged(client, tmp_path):
    text = tmp_path / "in.de"
    text.write_bytes(b"die neue tabelle zeigt die zelle .\n" * 40 + b"\xff\n")
    out = tmp_path / "out.en"
    out.write_text("old")
    options = ("-q", "--batch-size", "1", "--force")
    assert_one_sentence(nearmt("translate", client.store, text, "-o", out, *options), "UTF-8")
    assert out.read_text() == "old"
    text.write_text("die neue tabelle zeigt die zelle .\n", encoding="utf-8")
    assert nearmt("translate", client.store, text, "-o", text, "-q", "--force")[0] == 0
    assert "spreadsheet" in text.read_text(encoding="utf-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.de", "out.en"]


def test_long_line_without_spaces_is_split(client):
    code, out, _ = nearmt("translate", client.store, "-", "-q", stdin="tabelle\n" + "ä" * 300 + "\nzelle\n")
    assert code == 0
    assert out.count("\n") == 3


def test_store_can_be_the_working_directory(store_copy, monkeypatch):
    monkeypatch.chdir(store_copy)
    assert nearmt("info", ".")[0] == 0
    assert nearmt("translate", ".", "-", "-q", stdin="zelle\n")[0] == 0


def test_values_that_are_not_tokens_are_refused(store_copy):
    values = next((store_copy / "data-000001").glob("values*"))
    content = bytearray(values.read_bytes())
    content[3] = 0x7F
    values.write_bytes(content)
    assert_one_sentence(nearmt("translate", store_copy, "-", stdin="x\n"), "not token ids: run nearmt verify")


def test_train_warns_of_a_small_dev_set(store_copy, tmp_path):
    two = toy.write_tsv(tmp_path / "two.tsv", [*toy.sentences(2, 5), ("leer", "")])
    code, _, err = nearmt("train", store_copy, two, "--steps", "5", "--temperature", "1", "-q")
    assert code == 0
    assert "only 1 held-out" in err
    assert "1 empty" in err


def test_evaluate_refuses_an_untrained_store(client, tmp_path):
    out = tmp_path / "s.store"
    assert nearmt("build", client.memory, "--model", client.model, "--out", out, "--no-train", "-q")[0] == 0
    assert_one_sentence(nearmt("evaluate", out, client.test, "-q"), "nearmt train")


def test_translate_uses_the_chosen_method(client):
    text = "die neue tabelle zeigt die zelle .\n"
    _, base, _ = nearmt("translate", client.store, "-", "--method", "base", "-q", stdin=text)
    _, forced, _ = nearmt("translate", client.store, "-", "--method", "vanilla", "--share", "0", "-q", stdin=text)
    _, adaptive, _ = nearmt("translate", client.store, "-", "-q", stdin=text)
    assert base == forced
    assert "spreadsheet" not in base
    assert "spreadsheet" in adaptive


def test_train_and_use_other_networks(client, store_copy):
    assert_one_sentence(
        nearmt("translate", store_copy, "-", "--method", "kernel", stdin="x"),
        "has no trained kernel network: run nearmt train .* --methods adaptive,kernel,robust",
    )
    options = ("--temperature", "0.1", "--max-k", "4", "--steps", "300", "-q")
    code, out, _ = nearmt("train", store_copy, client.dev, "--methods", "adaptive, kernel,robust", *options)
    assert code == 0
    assert re.search(r"adaptive \d\.\d+, kernel \d\.\d+, robust \d\.\d+", out)
    code, info, _ = nearmt("info", store_copy)
    assert [line.split()[0] for line in info.splitlines()].count("kernel") == 1
    assert re.search(r"robust +K 4", info)
    text = "die neue tabelle zeigt die zelle ."
    for name in ("kernel", "robust"):
        _, out, _ = nearmt("translate", store_copy, "-", "-q", "--method", name, stdin=text)
        assert "spreadsheet" in out
        code, out, _ = nearmt("explain", store_copy, text, "--method", name)
        assert code == 0
        assert re.search(rf"method {name}, K 4", out)
    code, out, _ = nearmt("evaluate", store_copy, client.test, "--limit", "5", "--methods", "base,kernel,robust", "-q")
    assert code == 0
    assert "robust" in out


def test_evaluate_prints_a_table_with_signatures(client, tmp_path):
    code, out, err = nearmt("evaluate", client.store, client.test, "--limit", "20", "--outputs", tmp_path / "out")
    assert code == 0
    for word in ("base", "vanilla", "uniform", "adaptive", "BLEU", "chrF", "nrefs:1", "beam=4"):
        assert word in out
    assert "are in the store" not in err
    assert len((tmp_path / "out" / "adaptive.txt").read_text(encoding="utf-8").splitlines()) == 20
    code, out, err = nearmt("evaluate", client.store, client.memory, "--limit", "10", "--methods", "base,adaptive")
    assert "10 of the test pairs are in the store" in err
    code, out, _ = nearmt("evaluate", client.store, client.test, "--limit", "5", "--methods", "base,adaptive", "--json")
    assert set(json.loads(out)["comparison"]["scores"]) == {"base", "adaptive"}


def test_test_set_can_be_two_aligned_files(client, tmp_path):
    sides = [tmp_path / "test.de", tmp_path / "test.en"]
    for side, path in enumerate(sides):
        path.write_text("".join(f"{pair[side]}\n" for pair in client.test_pairs[:10]), encoding="utf-8")
    code, out, _ = nearmt("evaluate", client.store, *sides, "--methods", "base, adaptive", "--json", "-q")
    assert code == 0
    assert json.loads(out)["comparison"]["num_sentences"] == 10


def test_explain_shows_the_segments(client):
    sentence = "heute öffnet die tabelle die große zelle ."
    code, out, _ = nearmt("explain", client.store, sentence)
    assert code == 0
    assert "spreadsheet" in out
    assert "memory.tsv" in out
    _, out, _ = nearmt("explain", client.store, sentence, "--json")
    content = json.loads(out)
    assert len(content["tokens"][0]["neighbors"]) == 8
    assert {"segment", "weight", "squared_distance"} <= set(content["tokens"][0]["neighbors"][0])


def test_info_and_verify(client, store_copy, token_store):
    code, out, _ = nearmt("info", client.store)
    assert code == 0
    for word in ("500 sentences", "de → en", "retrieval    sentences", "index        500 sentences", "meta-k"):
        assert word in out
    code, out, _ = nearmt("info", token_store)
    assert code == 0
    for word in ("retrieval    tokens", "tokens: Flat", "recall"):
        assert word in out
    _, out, _ = nearmt("info", client.store, "--json")
    assert json.loads(out)["entries"] > 4000
    code, out, _ = nearmt("verify", store_copy)
    assert code == 0
    assert "is intact" in out
    keys = next((store_copy / "data-000001").glob("keys*"))
    content = bytearray(keys.read_bytes())
    content[100] ^= 4
    keys.write_bytes(content)
    assert_one_sentence(nearmt("verify", store_copy, "-q"), r"commit 1 .*keys\.int8 was changed")


def _bad_files(folder: Path) -> dict[str, tuple[list[Path], str]]:
    def file(name: str, content: bytes) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    tmx = (
        b'<tmx version="1.4"><header srclang="fr"/><body><tu><tuv xml:lang="%s"><seg>a</seg></tuv>%s</tu></body></tmx>'
    )
    return {
        "broken XML": ([file("broken.tmx", b"<tmx><body><tu>")], r"broken\.tmx"),
        "one language missing": ([file("fr.tmx", tmx % (b"fr", b""))], "fr"),
        "wrong encoding": ([file("latin.tsv", "für\tfor\n".encode("latin-1"))], "UTF-8"),
        "unequal lines": ([file("a.de", b"eins\nzwei\n"), file("a.en", b"one\n")], "2.*1|1.*2"),
        "empty file": ([file("empty.tsv", b"")], "empty"),
        "truncated gzip": ([file("cut.tsv.gz", gzip.compress(b"a\tb\n" * 999)[:-20])], "cut"),
        "no such file": ([folder / "missing.tmx"], "missing"),
        "unknown format": ([file("what.bin", b"\x00\x01")], "format"),
    }


@pytest.mark.parametrize(
    "case",
    [
        "broken XML",
        "one language missing",
        "wrong encoding",
        "unequal lines",
        "empty file",
        "truncated gzip",
        "no such file",
        "unknown format",
    ],
)
def test_failed_build_leaves_no_files(client, tmp_path, case):
    paths, pattern = _bad_files(tmp_path)[case]
    out = tmp_path / "s.store"
    result = nearmt("build", *paths, "--model", client.model, "--out", out, "--quiet")
    assert_one_sentence(result, pattern)
    assert list(tmp_path.glob("s.store*")) == []


def test_unusable_store_fails_with_one_sentence(client, store_copy, tmp_path):
    assert_one_sentence(nearmt("info", tmp_path / "nothing"), "nothing does not exist")
    assert_one_sentence(nearmt("translate", client.memory, "-", stdin=""), "not a nearmt store")
    values = next((store_copy / "data-000001").glob("values*"))
    values.write_bytes(values.read_bytes()[:-4])
    assert_one_sentence(nearmt("translate", store_copy, "-", stdin="x\n"), r"values\.int32 is cut short")
    assert_one_sentence(nearmt("build", client.memory, "--model", client.model, "--out", client.store), "--force")
    assert_one_sentence(nearmt("translate", client.store, tmp_path / "none.de"), "none.de")
    assert_one_sentence(
        nearmt("translate", client.store, "-", "--model", tmp_path / "no-model", stdin="x\n"), "no-model"
    )


def test_wrong_settings_fail_with_one_sentence(client):
    for arguments, pattern in (
        (("--method", "magic"), "adaptive, vanilla"),
        (("--early-stopping", "maybe"), "false, true or never"),
        (("--n-best", "9", "--json"), "--beam 9"),
        (("--n-best", "2"), "--json"),
        (("--k", "3"), "best method, adaptive, does not take --k: use --method vanilla or uniform"),
        (("--method", "base", "--k", "3"), "base does not take --k"),
        (("--method", "uniform", "--share", "0.3"), "uniform does not take --share: use --method vanilla$"),
        (("--method", "uniform", "--temperature", "nan"), "above 0"),
        (("--method", "vanilla", "--temperature", "0"), "above 0"),
        (("--method", "vanilla", "--share", "2"), "between 0 and 1"),
    ):
        assert_one_sentence(nearmt("translate", client.store, "-", *arguments, stdin="x\n"), pattern)


def test_unwritable_folder_fails_with_one_sentence(client, tmp_path):
    (tmp_path / "file").write_text("in the way")
    result = nearmt("build", client.memory, "--model", client.model, "--out", tmp_path / "file" / "s.store", "-q")
    assert_one_sentence(result, "file")


def test_toy_demo_runs(tmp_path, monkeypatch, capsys, client):
    """What `make demo` calls, with the model that is already there."""
    import shutil

    monkeypatch.setattr(toy, "train_model", lambda folder: shutil.copytree(client.model, folder))
    monkeypatch.setattr(sys, "argv", ["toy.py", str(tmp_path / "demo")])
    monkeypatch.setattr(toy, "QUICK_OPTIONS", ["--max-k", "4"])
    monkeypatch.setattr("nearmt.training.train_store.AdaptationSettings", lambda max_k: replace(QUICK, max_k=max_k))
    toy.main()
    out = capsys.readouterr().out
    assert "adaptive" in out
    assert "spreadsheet" in out


def test_build_uses_the_chosen_engine(client, tmp_path):
    store = tmp_path / "s"
    code, _, err = nearmt(
        "build", client.memory, "--model", client.model, "--out", store, "--no-train", "--engine", "int8"
    )
    assert code == 0, err
    assert json.loads(nearmt("info", store, "--json")[1])["model"]["engine"] == "int8"
    code, _, err = nearmt("build", client.memory, "--model", client.model, "--out", tmp_path / "t", "--engine", "steam")
    assert code == 2
    assert "must be one of auto, torch, int8" in err


def test_log_lines_estimate_the_remaining_time(monkeypatch, capsys):
    clock = iter([0.0, 60.0, 60.0, 75.0, 3700.0])
    monkeypatch.setattr("nearmt.cli.output.time.monotonic", lambda: next(clock))
    lines: list[str] = []
    monkeypatch.setattr("nearmt.cli.output.errors.print", lines.append)
    report = _LineReporter()
    for stage, done, total in [("a", 0, 40), ("a", 10, 40), ("b", 1, None), ("a", 2, 40), ("a", 4, 40)]:
        report(stage, done, total)
    assert lines == ["a 0 of 40", "a 10 of 40, 3 min left", "b 1", "a 2 of 40", "a 4 of 40, 18 h 8 min left"]


def test_index_memory_limit_is_stored(client, tmp_path):
    where = ("--model", client.model, "--no-train", "--quiet")
    code, out, err = nearmt(
        "build", client.memory, "--out", tmp_path / "small.store", "--memory", "2M", "--json", *where
    )
    assert code == 0, err
    assert json.loads(out)["index"]["memory"] == 2 << 20
    code, _, err = nearmt("build", client.memory, "--out", tmp_path / "other.store", "--memory", "some", *where)
    assert code != 0
    assert "such as 500M or 4G" in err
    code, out, err = nearmt("index", tmp_path / "small.store", "--memory", "1M", "--json", "--quiet")
    assert code == 0, err
    assert Store(tmp_path / "small.store").manifest.index.memory == 1 << 20


def test_bench_indexes_compares_with_the_default_index(client):
    measured = ("--queries", "20", "--rows", "4", "--k", "4", "--rounds", "1", "-q")
    code, out, err = nearmt("bench", "indexes", client.store, "--index", "IVF4,Flat", *measured)
    assert code == 0, err
    assert "20 queries" in out
    assert "IVF4,Flat" in out
    result = nearmt("bench", "indexes", client.store, "--uri", "http://127.0.0.1:1", *measured)
    assert_one_sentence(result, "--uri .* --index milvus")
