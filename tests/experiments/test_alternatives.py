"""What a user would do instead of a memory, compared on the toy pair."""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from nearmt.corpus import SentencePair
from nearmt.errors import SettingError
from nearmt.evaluation.scores import bleu
from nearmt.experiments.alternatives.fine_tuning import FineTuning, TuningSettings
from nearmt.experiments.alternatives.low_rank import LowRank, add_adapters, merge_adapters
from nearmt.experiments.alternatives.report import Report
from nearmt.experiments.alternatives.results import Results
from nearmt.experiments.alternatives.run import Steps, run
from nearmt.experiments.alternatives.settings import AlternativesSettings, Files
from nearmt.experiments.alternatives.terms import Terms
from nearmt.experiments.alternatives.trainable import Trainable
from nearmt.experiments.alternatives.workbench import Workbench
from nearmt.models import Seq2Seq
from quick import QUICK

SETTINGS = AlternativesSettings(
    budget=1.0,
    long=1.5,
    long_kinds=("full",),
    rates={"full": (1e-3, 3e-3), "lora": (1e-2,)},
    trial=0.3,
    batch_tokens=256,
    checks=(3, 3),
    dev_sentences=20,
    sentence_rates=(0.1,),
    sentence_dev=2,
    sentence_test=4,
    corrections=1,
)


@pytest.fixture(scope="module")
def files(client, tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")

    def first(path, count):
        short = folder / path.name
        short.write_text("".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[:count]), encoding="utf-8")
        return short

    other = folder / "other.tsv"
    pairs = [("die neue linie öffnet die form .", "the new line opens the shape .")] * 3
    other.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return Files(client.memory, client.dev, first(client.test, 12), other)


def bench_in(folder, client, files, settings=SETTINGS):
    log: list[str] = []
    bench = Workbench(client.store, 0.5, files, Results(folder), settings, QUICK, log.append)
    return bench, log


@pytest.fixture(scope="module")
def compared(client, files, tmp_path_factory):
    folder = tmp_path_factory.mktemp("alternatives") / "out"
    bench, _ = bench_in(folder, client, files)
    run(bench)
    return folder


def test_every_system_is_in_the_table(compared, client, files):
    bench, log = bench_in(compared, client, files)
    run(bench)
    assert not log  # everything was kept
    terms = Terms.of([pair.target for pair in bench.pairs(files.memory)], [pair.target for pair in bench.other.pairs])
    report = Report(bench.results, bench.test.pairs, bench.other.pairs, terms, bench.own_system)
    text = report.as_markdown()
    for title in (
        "the model alone",
        "best match copied",
        "best match from ",
        "fine-tuned, ×1 |",
        "fine-tuned, ×1.5 |",
        "fine-tuned, ×1, with a memory (adaptive)",
        "LoRA, ×1 |",
        "memory, vanilla",
        "memory, adaptive",
        "adapted to each sentence",
    ):
        assert f"| {title}" in text
    assert "On 4 sentences of the test set" in text
    base, memory = (json.loads((compared / f"{name}.json").read_text()) for name in ("base", "memory-adaptive"))
    assert bleu(memory["test"], bench.test.references) > bleu(base["test"], bench.test.references)
    tuned = json.loads((compared / "full-1.json").read_text())
    assert tuned["details"]["best_loss"] < tuned["details"]["losses"][0][1]


def test_an_interrupted_comparison_goes_on(compared, client, files):
    (compared / "lora-1.json").rename(compared / "lora-1.kept")
    bench, log = bench_in(compared, client, files)
    run(bench, ["lora-1"])
    assert log[0] == "lora-1"
    assert json.loads((compared / "lora-1.json").read_text())["test"]
    assert Steps(bench).base() == json.loads((compared / "base.json").read_text())


def test_the_command_prints_what_is_finished(client, files, tmp_path, monkeypatch, capsys):
    path = Path(__file__).parents[2] / "benchmarks" / "alternatives.py"
    spec = importlib.util.spec_from_file_location("alternatives_command", path)
    assert spec is not None
    command = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(command)
    given = [client.store, files.memory, files.dev, files.test, files.other, tmp_path / "out"]
    options = ["--build-seconds", "1", "--budget", "1", "--only", "base"]
    for more, is_run in (([], True), ([], False), (["--report"], False)):
        monkeypatch.setattr("sys.argv", ["alternatives.py", *map(str, given), *options, *more])
        command.main()
        printed = capsys.readouterr()
        assert "| the model alone |" in printed.out
        assert ("base" in printed.err) == is_run


def test_other_settings_are_refused(compared, client, files):
    with pytest.raises(SettingError, match="other files or settings"):
        bench_in(compared, client, files, replace(SETTINGS, trial=0.5))
    bench_in(compared, client, files, replace(SETTINGS, long_kinds=()))


@pytest.mark.parametrize("adapters", [False, True])
def test_fine_tuning_continues_from_its_checkpoint(client, toy_model, tmp_path, monkeypatch, adapters):
    pairs = [SentencePair(*pair) for pair in client.test_pairs[:40]]

    def tuning():
        trainable = Trainable.load(str(client.model), toy_model)
        batches = trainable.batches(pairs, 128)
        settings = TuningSettings(0.6, 1e-3, adapters=adapters, checks=3, save_every=0.0)
        return FineTuning(trainable, batches, batches[:2], settings, tmp_path / "run")

    class KilledError(Exception):
        pass

    def killed(self):
        save(self)
        raise KilledError

    save, first = FineTuning._save, tuning()
    with monkeypatch.context() as patch:
        patch.setattr(FineTuning, "_save", killed)
        with pytest.raises(KilledError):
            first.run()
    assert first.state.steps > 0
    second = tuning()
    second._resume()
    assert second.state == first.state
    for name, weight in first._trained.items():
        assert torch.equal(weight, second._trained[name])
    state = second.run()
    assert state.steps > first.state.steps
    assert state.best_loss == min(loss for _, loss in state.losses)
    second.discard()
    assert not list((tmp_path / "run").iterdir())


def test_gradients_are_those_of_the_whole_batch(client, toy_model):
    trainable = Trainable.load(str(client.model), toy_model)
    batch = trainable.batches([SentencePair(*pair) for pair in client.test_pairs[:60]], 1000)[0]
    found = trainable.accumulate(batch)
    gradients = {name: p.grad.clone() for name, p in trainable.network.named_parameters() if p.grad is not None}
    trainable.network.zero_grad()
    logits = trainable.network(batch.source_ids, batch.source_mask, batch.decoder_ids).logits
    expected = nn.functional.cross_entropy(
        logits.flatten(0, 1), batch.labels.flatten(), ignore_index=-1, label_smoothing=0.1
    )
    expected.backward()
    assert found == pytest.approx(float(expected.detach()), rel=1e-4)
    for name, parameter in trainable.network.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(gradients[name], parameter.grad, atol=1e-5, rtol=1e-3)


def test_a_saved_model_translates_like_the_original(client, toy_model, tmp_path):
    folder = Trainable.load(str(client.model), toy_model).save(tmp_path / "model")
    loaded = Seq2Seq.load(folder)
    source = toy_model.tokenize_sources(["die rote tabelle öffnet die seite ."])
    assert loaded.tokenize_sources(["die rote tabelle öffnet die seite ."]) == source
    target = toy_model.tokenize_targets(["the red table opens the side ."])
    torch.testing.assert_close(
        loaded.force_decode(source, target).states, toy_model.force_decode(source, target).states
    )


def test_adapters_start_without_effect_and_merge_into_the_weights():
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4))
    inputs = torch.randn(3, 6)
    before = network(inputs)
    add_adapters(network, network[2], rank=2)
    assert isinstance(network[0], LowRank)
    assert isinstance(network[2], nn.Linear)
    assert [name for name, p in network.named_parameters() if p.requires_grad] == ["0.down", "0.up"]
    torch.testing.assert_close(network(inputs), before)
    nn.init.normal_(network[0].up)
    adapted = network(inputs)
    merge_adapters(network)
    assert isinstance(network[0], nn.Linear)
    torch.testing.assert_close(network(inputs), adapted)


def test_terms_are_frequent_in_the_memory_and_rare_elsewhere():
    filler = " ".join(f"word{number}" for number in "abcdefghij" * 10)
    memory = ["the closing date of the plan"] * 3 + ["a closing date, and the plan 7"] * 3 + ["a rare word", filler]
    common = "the a and of " + " ".join(f"common{number}x" for number in range(96))
    other = [common] * 300 + ["date"] * 20 + ["plan"] * 290
    terms = Terms.of(memory, other)
    assert terms.terms == {("closing",), ("date",), ("closing", "date")}  # and not "rare", "plan", "the" or "7"
    assert terms.recall(["the closing plan"], ["closing date closing"]) == 1 / 4
    assert terms.recall(["nothing"], ["here"]) == 0
