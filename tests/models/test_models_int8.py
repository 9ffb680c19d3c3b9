"""The int8 engine: its graphs equal the model, its rounding is small, and its sessions behave like those of torch."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tiny_models
from nearmt.decoding.beam import BeamSettings
from nearmt.decoding.decoder import Decoder, DecodingSettings
from nearmt.errors import MissingExtraError, ModelError, SettingError
from nearmt.models import Seq2Seq, int8
from nearmt.models.int8 import layers, networks, projection
from nearmt.models.int8 import session as int8_session
from nearmt.models.int8.layers import Layers, QuantizedRows, QuantizedWeights, quantize_weights

SOURCES = ["die Tabelle ist gesperrt.", "der Hund", "das kleine Haus und ein Wort nicht rot.", "wir öffnen die Datei."]
TARGETS = ["the spreadsheet is locked.", "a dog red", "this small house and a word not red.", "we open the file."]
FAMILIES = ("marian", "m2m100", "nllb")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folder(family: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.FAMILIES[family][0](tmp_path_factory.mktemp(family))


def load(folder: Path, family: str, engine: str) -> Seq2Seq:
    return Seq2Seq.load(folder, engine=engine, **tiny_models.FAMILIES[family][1])


@pytest.fixture(scope="module")
def plain(folder: Path, family: str) -> Seq2Seq:
    return load(folder, family, "torch")


@pytest.fixture(scope="module")
def model(folder: Path, family: str) -> Seq2Seq:
    return load(folder, family, "int8")


def forced_states(model: Seq2Seq) -> torch.Tensor:
    return model.force_decode(model.tokenize_sources(SOURCES), model.tokenize_targets(TARGETS)).states


def relative_errors(found: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    return (found - expected).norm(dim=1) / expected.norm(dim=1)


def keep_exactly(*modules: nn.Linear) -> QuantizedWeights:
    weights = torch.cat(tuple(m.weight for m in modules)).T.contiguous().numpy()
    biases = tuple(torch.zeros(len(m.weight)) if m.bias is None else m.bias for m in modules)
    return QuantizedWeights(weights, np.ones(weights.shape[1], np.float32), torch.cat(biases).numpy())


@pytest.fixture
def no_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same graphs with float32 instead of int8."""

    def keep_rows(self: Layers, rows: str, *, is_positive: bool = False) -> QuantizedRows:
        return QuantizedRows(rows, self.graph.constant([[1.0]], np.float32), 0)

    def multiply(self: Layers, rows: QuantizedRows, weights: QuantizedWeights) -> str:
        return self.graph.add("MatMul", rows.values, self.graph.constant(weights.values * weights.scales))

    monkeypatch.setattr(Layers, "quantize", keep_rows)
    monkeypatch.setattr(Layers, "integer_product", multiply)
    for module in (layers, networks, projection):
        monkeypatch.setattr(module, "quantize_weights", keep_exactly)


@pytest.mark.usefixtures("no_rounding")
def test_graphs_in_float32_equal_the_model(folder: Path, family: str, plain: Seq2Seq) -> None:
    exact = load(folder, family, "int8")
    engine: Any = exact._engine
    table = plain._engine.model.get_input_embeddings().weight  # type: ignore[attr-defined]
    for side in ("embed_sources", "embed_targets"):
        setattr(engine, side, replace(getattr(engine, side), tokens=table))
    found, expected = forced_states(exact), forced_states(plain)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(exact.project(expected), plain.project(expected), rtol=1e-4, atol=1e-4)


def test_states_and_logits_are_close_to_float32(model: Seq2Seq, plain: Seq2Seq) -> None:
    expected = forced_states(plain)
    assert relative_errors(forced_states(model), expected).mean() < 0.1  # random weights of size; trained ones: 0.02
    assert relative_errors(model.project(expected), plain.project(expected)).max() < 0.04


def test_states_are_ordinary_float32_tensors(model: Seq2Seq) -> None:
    under_way = model.start_decoding(model.tokenize_sources(SOURCES[:1]))
    output = under_way.step(torch.tensor([model.start_token_id]), torch.tensor([0]))
    for tensor in (forced_states(model), output.states, output.logits, model.project(output.states)):
        assert tensor.dtype == torch.float32
        tensor.add_(1.0)
    assert model.project(output.states[:0]).shape == (0, model.vocabulary_size)


def test_result_does_not_depend_on_other_rows(model: Seq2Seq) -> None:
    states = forced_states(model)
    alone = torch.cat([model.project(row[None]) for row in states])
    assert torch.equal(model.project(states), alone)
    loud = torch.cat((states, 1000 * states))
    assert torch.equal(model.project(loud)[: len(states)], alone)


def test_batch_equals_single(model: Seq2Seq) -> None:
    together = model.force_decode(model.tokenize_sources(SOURCES), model.tokenize_targets(TARGETS))
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        alone = model.force_decode(model.tokenize_sources([source]), model.tokenize_targets([target]))
        torch.testing.assert_close(alone.states, together.states[together.rows == row], rtol=1e-4, atol=1e-5)


def test_steps_equal_forced_decoding(model: Seq2Seq) -> None:
    """Three rows per sentence that are reordered and share parents; two sentences end early, the first one included."""
    sources = model.tokenize_sources(SOURCES)
    targets = [ids[:4] for ids in model.tokenize_targets(TARGETS)]
    whole = model.force_decode(sources, targets, keep_unknown=True)
    session = model.start_decoding(sources)
    inputs = [[model.start_token_id, *model.forced_prefix, *target] for target in targets]
    skip, live, rows_before = len(model.forced_prefix), [0, 1, 2, 3], 1
    for step in range(skip + 4):
        before = live
        live = {skip + 2: [1, 2, 3], skip + 3: [1, 3]}.get(step, live)
        group = 1 if step == 0 else 3
        places = [0, 0, 0] if rows_before == 1 else [2, 0, 0]
        parents = [before.index(s) * rows_before + places[b] for s in live for b in range(group)]
        tokens = [inputs[s][step] for s in live for _ in range(group)]
        output = session.step(torch.tensor(tokens), torch.tensor(parents))
        rows_before = group
        assert session.num_source_rows == len(live)
        for place, sentence in enumerate(live if step >= skip else []):
            expected = whole.states[(whole.rows == sentence) & (whole.positions == step - skip)]
            rows = output.states[place * group : (place + 1) * group]
            torch.testing.assert_close(rows, expected.expand_as(rows), rtol=1e-3, atol=1e-3)


def test_hypotheses_see_only_their_own_past(model: Seq2Seq) -> None:
    """Two hypotheses of one sentence that swap rows, compared with each decoded alone."""
    sources = model.tokenize_sources(SOURCES[:1])
    first, second = model.tokenize_targets(TARGETS[:1])[0][:4], model.tokenize_targets(TARGETS[2:3])[0][:4]
    session, start = model.start_decoding(sources), [model.start_token_id, *model.forced_prefix]
    paths = [start + first, start + second]
    session.step(torch.tensor([start[0]]), torch.tensor([0]))
    for step in range(1, len(paths[0])):
        is_crossed = step % 2 == 0
        order = paths[::-1] if is_crossed else paths
        parents = [0, 0] if step == 1 else [1, 0]
        output = session.step(torch.tensor([path[step] for path in order]), torch.tensor(parents))
        for row, path in enumerate(order):
            alone = model.start_decoding(sources)
            for token in path[: step + 1]:
                single = alone.step(torch.tensor([token]), torch.tensor([0]))
            torch.testing.assert_close(output.states[row : row + 1], single.states, rtol=1e-3, atol=1e-3)


def test_long_outputs_need_more_slots(model: Seq2Seq) -> None:
    sources = model.tokenize_sources(SOURCES[:2])
    tokens = model.tokenize_targets([" ".join(TARGETS)])[0][:30]
    whole = model.force_decode(sources, [tokens, tokens], keep_unknown=True)
    inputs = [model.start_token_id, *model.forced_prefix, *tokens]
    session = model.start_decoding(sources)
    for step in range(len(inputs) - 1):
        group = 1 if step == 0 else 4
        parents = torch.arange(2).repeat_interleave(4) if step == 1 else torch.arange(2 * group)
        output = session.step(torch.full((2 * group,), inputs[step]), parents)
    last = whole.states[whole.positions == len(tokens) - 1].repeat_interleave(4, dim=0)
    torch.testing.assert_close(output.states, last, rtol=1e-3, atol=1e-3)


def test_dropping_slots_changes_no_translation(model: Seq2Seq, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = model.tokenize_sources(SOURCES)
    decoder = Decoder(model, settings=DecodingSettings(BeamSettings(num_beams=5, num_hypotheses=3), length_extra=20))
    expected = decoder.decode(sources)
    monkeypatch.setattr(int8_session, "_COMPACTION_SLOTS", 5)
    monkeypatch.setattr(int8_session, "_MIN_NEW_SLOTS", 8)
    assert [[h.token_ids for h in best] for best in decoder.decode(sources)] == [
        [h.token_ids for h in best] for best in expected
    ]


def test_rows_out_of_order_are_refused(model: Seq2Seq) -> None:
    session = model.start_decoding(model.tokenize_sources(SOURCES))
    tokens = torch.full((4,), model.start_token_id)
    with pytest.raises(ValueError, match="grouped by sentence"):
        session.step(tokens, torch.tensor([1, 0, 2, 3]))
    with pytest.raises(ValueError, match="first step"):
        session.step(tokens[:2], torch.tensor([0, 2]))


def test_translations_begin_with_the_forced_prefix_and_do_not_depend_on_the_batch(model: Seq2Seq) -> None:
    sources = model.tokenize_sources(SOURCES * 3)
    settings = [DecodingSettings(BeamSettings(num_beams=3), batch_size=size) for size in (1, 12)]
    alone, together = (Decoder(model, settings=chosen).decode(sources) for chosen in settings)
    assert [h[0].token_ids for h in alone] == [h[0].token_ids for h in together]
    prefix = model.forced_prefix
    assert all(h[0].token_ids[: len(prefix)] == prefix for h in together)


def test_one_model_serves_many_threads(model: Seq2Seq) -> None:
    sources = model.tokenize_sources(SOURCES)
    expected = [Decoder(model).decode([source])[0][0].token_ids for source in sources]
    found: dict[int, list[Any]] = {}

    def work(index: int) -> None:
        found[index] = [Decoder(model).decode([sources[index]])[0][0].token_ids for _ in range(3)]

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[index] for index in range(4)] == [[ids] * 3 for ids in expected]


def test_neighbouring_weights_cannot_overflow() -> None:
    torch.manual_seed(0)
    linear = nn.Linear(64, 200)
    with torch.no_grad():
        linear.weight[0] = 0.0
        linear.weight[1, :2] = 50.0
    quantized = quantize_weights(linear)
    pairs = np.abs(quantized.values.astype(np.int64)).reshape(32, 2, 200).sum(axis=1)
    assert pairs.max() <= 128
    back = quantized.values * quantized.scales
    assert np.abs(back - linear.weight.detach().numpy().T).max(axis=0).tolist() <= (0.51 * quantized.scales).tolist()


def test_auto_leaves_small_models_to_torch(folder: Path, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(folder, family, "auto").engine == "torch"
    monkeypatch.setattr(int8, "_MIN_WIDTH", 32)
    assert load(folder, family, "auto").engine == "int8"


def test_auto_is_torch_for_other_families(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8, "_MIN_WIDTH", 32)
    folder = tiny_models.make_t5(tmp_path)
    assert Seq2Seq.load(folder).engine == "torch"
    with pytest.raises(ModelError, match=r"the int8 engine supports MarianMTModel .* is a T5ForConditionalGeneration"):
        Seq2Seq.load(folder, engine="int8")


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.make_marian(tmp_path_factory.mktemp("small"))


def test_unknown_engine_is_refused(marian: Path) -> None:
    with pytest.raises(SettingError, match="`engine` must be one of auto, torch, int8, not 'fast'"):
        Seq2Seq.load(marian, engine="fast")


def test_without_onnxruntime_auto_is_torch(marian: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8, "_MIN_WIDTH", 32)
    monkeypatch.setitem(__import__("sys").modules, "nearmt.models.int8.engine", None)
    assert Seq2Seq.load(marian).engine == "torch"
    with pytest.raises(MissingExtraError, match="pip install onnx onnxruntime"):
        Seq2Seq.load(marian, engine="int8")


def test_wrongly_converted_network_is_not_used(marian: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8, "_MIN_WIDTH", 32)
    monkeypatch.setitem(layers._ACTIVATIONS, "gelu", ("Neg", {}, -100.0))
    assert Seq2Seq.load(marian).engine == "torch"
    with pytest.raises(ModelError, match="does not reproduce"):
        Seq2Seq.load(marian, engine="int8")
    monkeypatch.delitem(layers._ACTIVATIONS, "gelu")
    with pytest.raises(ModelError, match="the activation gelu is not supported"):
        Seq2Seq.load(marian, engine="int8")
