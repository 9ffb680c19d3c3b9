"""The ready-made configurations on data as people have it: finding files, taking parts, estimating the costs."""

import gzip
import json
import re
import shutil
from collections import namedtuple
from dataclasses import replace
from typing import Any

import pytest

from command_line import assert_one_sentence, nearmt
from nearmt.corpus import SentencePair
from nearmt.datastore import Languages
from nearmt.errors import OutputError, SettingError
from nearmt.experiments.paper import load_config, plan, run_paper
from nearmt.experiments.paper.lab import Lab
from nearmt.experiments.paper.plan import Plan, make_plan
from nearmt.experiments.paper.run import EXPERIMENTS
from nearmt.experiments.paper.selection import blocks, cut, limited_memory
from nearmt.models import Seq2Seq
from tiny_models import SOURCE_WORDS, TARGET_WORDS, make_fsmt, make_sentences

DOMAINS = ("it", "medical", "koran", "law", "subtitles")
SIZES = {"train": 60, "dev": 30, "test": 10}
QUICK: dict[str, Any] = {
    "k": (1, 2),
    "seeds": (1,),
    "steps": 20,
    "judged_sentences": 4,
    "judged_settings": 1,
    "features_k": 2,
    "timing_k": (2,),
    "sections": ("main", "metrics", "matches", "statistics"),
}


def write_domain(folder, seed):
    folder.mkdir(parents=True)
    for number, (part, count) in enumerate(SIZES.items()):
        for language, words in (("de", SOURCE_WORDS), ("en", TARGET_WORDS)):
            lines = make_sentences(words, count, seed=10 * seed + number)
            (folder / f"{part}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The multi-domain data as its archive unpacks it."""
    folder = tmp_path_factory.mktemp("data")
    for seed, name in enumerate(DOMAINS):
        write_domain(folder / name, seed)
    return folder


@pytest.fixture(scope="module")
def fsmt(tmp_path_factory):
    return Seq2Seq.load(make_fsmt(tmp_path_factory.mktemp("fsmt")))


@pytest.fixture(scope="module")
def quick(data):
    return replace(load_config("paper-de-en", data), **QUICK)


@pytest.fixture(scope="module")
def finished(quick, fsmt, tmp_path_factory):
    plans: list[Plan] = []
    out = tmp_path_factory.mktemp("run") / "out"
    sections = run_paper(quick, out, fsmt, on_plan=plans.append)
    return {section.name: section for section in sections}, plans, out


def test_the_papers_set_up_runs_on_the_unpacked_data(finished, quick):
    sections, _, _ = finished
    assert [domain.name for domain in quick.domains] == ["IT", "Medical", "Koran", "Law"]
    assert [domain.paper_share for domain in quick.domains] == [0.7, 0.8, 0.8, 0.8]
    assert [domain.paper_temperature for domain in quick.domains] == [10.0, 10.0, 100.0, 10.0]
    assert quick.model == "facebook/wmt19-de-en"
    statistics = sections["statistics"].data
    assert all(0 < statistics[name]["sentences"] <= SIZES["train"] for name in ("IT", "Medical", "Koran", "Law"))
    assert "base / Law" in sections["main"].data


def test_the_plan_comes_first_and_fits_what_the_stores_take(finished, quick, fsmt):
    _, (planned,), out = finished
    assert [(d.name, d.pairs, d.dev_sentences, d.test_sentences) for d in planned.domains] == [
        (name, SIZES["train"], SIZES["dev"], SIZES["test"]) for name in ("IT", "Medical", "Koran", "Law")
    ]
    lab = Lab(quick, fsmt, out)
    for found, domain in zip(planned.domains, lab.domains.values(), strict=True):
        assert found.entries == pytest.approx(domain.snapshot.manifest.num_entries, rel=0.1)
    assert planned.disk == sum(domain.store_bytes for domain in planned.domains)
    assert planned.memory > 0
    assert all(seconds > 0 for seconds in planned.seconds.values())


def test_a_finished_run_has_no_plan(finished, quick, fsmt):
    run_paper(quick, finished[2], fsmt, on_plan=lambda found: pytest.fail("there is nothing to do"))


def test_an_estimate_counts_only_what_is_missing(finished, quick, fsmt, tmp_path):
    out = shutil.copytree(finished[2], tmp_path / "out")
    (law,) = (out / "stores").glob("law-*")
    law.rename(law.with_name(f"{law.name}.partial"))
    planned = make_plan(Lab(quick, fsmt, out), EXPERIMENTS)
    assert [domain.name for domain in planned.domains if not domain.is_built] == ["Law"]
    assert planned.disk < planned.domains[-1].store_bytes
    assert planned.seconds["building"] > planned.seconds["choosing"] == 0


def test_a_run_whose_stores_do_not_fit_on_the_disk_is_refused(quick, fsmt, tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(plan.shutil, "disk_usage", lambda path: usage(10, 0, 1000))
    seen: list[Plan] = []
    with pytest.raises(OutputError, match=r"the stores need 0\.0 GB, .* 0\.0 GB free: 0\.0 GB are missing"):
        run_paper(quick, tmp_path / "out", fsmt, on_plan=seen.append)
    assert seen[0].free_disk == 1000
    assert not list((tmp_path / "out" / "stores").iterdir())


def test_files_are_found_whatever_their_capitals_compressed_or_one_folder_deeper(data, tmp_path):
    inside = tmp_path / "multi_domain_new_split"
    shutil.copytree(data, inside)
    (inside / "it").rename(inside / "IT")
    (inside / "koran").rename(inside / "Koran")
    packed = inside / "law" / "train.de"
    packed.with_name("train.de.gz").write_bytes(gzip.compress(packed.read_bytes()))
    packed.unlink()
    config = load_config("paper-de-en", tmp_path)
    assert [path.name for path in config.domains[3].memory] == ["train.de.gz", "train.en"]
    assert config.domains[0].test == (inside / "IT" / "test.de", inside / "IT" / "test.en")
    assert config.domains[2].dev == (inside / "Koran" / "dev.de", inside / "Koran" / "dev.en")


def test_missing_files_are_named_in_one_sentence(data, tmp_path):
    lacking = tmp_path / "data"
    shutil.copytree(data, lacking)
    shutil.rmtree(lacking / "law")
    (lacking / "it" / "dev.en").unlink()
    message = f"{lacking} lacks files that paper-de-en needs: it/dev.en, law/train.de, law/train.en and 4 more"
    with pytest.raises(SettingError, match=re.escape(message)):
        load_config("paper-de-en", lacking)
    assert_one_sentence(nearmt("paper", "paper-de-en", "--data", lacking), "it/dev.en, .* and 4 more")
    assert_one_sentence(nearmt("paper", "paper-de-en", "--data", tmp_path / "no"), "--data: .*no is not a directory")
    assert_one_sentence(nearmt("paper", "paper-de-en"), "set --data to the folder that has them")


def test_the_command_says_what_a_run_takes_before_it_begins(client, tmp_path, monkeypatch):
    config = tmp_path / "toy.toml"
    settings = "".join(f"{key} = {json.dumps(value)}\n" for key, value in QUICK.items())
    domain = 'name = "Client"\nmemory = "memory.tsv"\ndev = "dev.tsv"\ntest = "test.tsv"\n'
    config.write_text(f'title = "T"\nmodel = "{client.model}"\ntest_sentences = 4\n{settings}[[domains]]\n{domain}')
    command = ("paper", config, "--data", client.memory.parent, "--out", tmp_path / "out")
    monkeypatch.setattr(plan, "_machine_memory", lambda: 1000)
    code, _, err = nearmt(*command)
    assert code == 0
    assert re.search(r"Client: [\d,]+ pairs, about [\d,]+ entries, 0\.0 GB; \d+ dev and 4 test sentences", err)
    assert re.search(
        r"This takes about 0\.0 GB of disk \([\d.]+ GB are free\), [\d.]+ GB of 0\.0 GB of memory and", err
    )
    assert "this is more memory than the machine has" in err
    assert "This takes" not in nearmt(*command)[2]


@pytest.fixture
def french(tmp_path):
    """Files for opus-fr-en. Law has a test file, the others take the end of dev."""
    for seed, name in enumerate(("it", "medical", "law", "koran")):
        for part, count in {"train": 40, "dev": 20, "test": 7}.items():
            if part == "test" and name != "law":
                continue
            sides = (make_sentences(words, count, seed=seed) for words in (SOURCE_WORDS, TARGET_WORDS))
            lines = "".join(f"{source}\t{target}\n" for source, target in zip(*sides, strict=True))
            (tmp_path / f"{name}.{part}.tsv.gz").write_bytes(gzip.compress(lines.encode()))
    return tmp_path


def test_the_french_set_up_takes_tests_from_dev_and_general_text_where_it_is(french, fsmt):
    config = load_config("opus-fr-en", french)
    assert (config.model, config.engine, config.seeds) == ("Helsinki-NLP/opus-mt-fr-en", "auto", (1, 2, 3))
    assert config.general == ()
    lab = Lab(config, fsmt, french / "out")
    koran, law = lab.domains["Koran"], lab.domains["Law"]
    assert (koran.num_dev_pairs, len(koran.test)) == (10, 10)
    assert (law.num_dev_pairs, len(law.test)) == (20, 7)
    lines = gzip.decompress((french / "koran.dev.tsv.gz").read_bytes()).decode().splitlines()
    assert [pair.source for pair in koran.test.pairs] == [line.split("\t")[0] for line in lines[10:]]
    shutil.copy(french / "law.test.tsv.gz", french / "wmt13.tsv.gz")
    again = load_config("opus-fr-en", french)
    assert again.general == (french / "wmt13.tsv.gz",)
    general = Lab(again, fsmt, french / "out").general
    assert general is not None
    assert len(general) == 7


def test_the_french_set_up_runs_on_a_part_of_each_memory(french, fsmt):
    config = replace(load_config("opus-fr-en", french), memory_pairs=15, **QUICK)
    plans: list[Plan] = []
    sections = {s.name: s for s in run_paper(config, french / "out", fsmt, on_plan=plans.append)}
    assert all(found["sentences"] <= 15 for found in sections["statistics"].data.values())
    assert {domain.pairs for domain in plans[0].domains} == {15}


def test_a_configuration_needs_a_test_file_or_a_share_of_dev(client, tmp_path):
    text = f'title = "T"\nmodel = "m"\n[[domains]]\nname = "A"\nmemory = "{client.memory}"\ndev = "{client.dev}"\n'
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(SettingError, match="domain A: test is missing; without one, set test_from_dev"):
        load_config(path)
    path.write_text("test_from_dev = 0.5\n" + text)
    assert load_config(path).domains[0].test == ()
    for wrong in ("1.5", "true", '"half"'):
        path.write_text(f"test_from_dev = {wrong}\n" + text)
        with pytest.raises(SettingError, match="`test_from_dev` must be a number between 0 and 1"):
            load_config(path)


def test_the_border_of_a_test_set_is_the_end_of_a_document_if_one_is_near():
    def pairs(*lengths):
        return [SentencePair("a", "b", origin=f"doc{n}") for n, length in enumerate(lengths) for _ in range(length)]

    assert cut(pairs(100), 0.5) == 50
    assert cut(pairs(45, 55), 0.5) == 45
    assert cut(pairs(41, 15, 44), 0.5) == 56
    assert cut(pairs(10, 90), 0.5) == 50


def test_blocks_are_evenly_spaced_and_hold_the_wanted_number():
    assert blocks(100, 200) == [range(100)]
    assert blocks(5000, 1500) == [range(500), range(2250, 2750), range(4500, 5000)]
    for total in (1, 999, 5000, 12345):
        for wanted in {1, 499, 501, 998, 1001, 4999, 12344}:
            found = blocks(total, wanted)
            rows = [row for block in found for row in block]
            assert rows == sorted(set(rows))
            assert len(rows) == min(wanted, total)
            assert rows[-1] < total


def test_a_limited_memory_keeps_pairs_whole_and_in_order(tmp_path):
    memory = tmp_path / "memory.tsv"
    memory.write_text("".join(f"q{n}\tz{n}\tid{n}\tdoc{n // 700}\n" for n in range(3000)), encoding="utf-8")
    path = limited_memory([memory], Languages("de", "en"), 1000, tmp_path)
    pairs = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [pair["source"] for pair in pairs] == [f"q{n}" for n in (*range(500), *range(2500, 3000))]
    assert (pairs[-1]["target"], pairs[-1]["unit_id"], pairs[-1]["origin"]) == ("z2999", "id2999", "doc4")
    before = path.stat().st_mtime_ns
    assert limited_memory([memory], Languages("de", "en"), 1000, tmp_path).stat().st_mtime_ns == before
