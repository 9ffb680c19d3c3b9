"""Random changes of a store, compared with a plain list of units: the same units and neighbours after each step."""

import shutil
import tempfile
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fake_model import WIDTH, FakeModel, state_of
from nearmt.building.compaction import compact
from nearmt.building.editing import Editor
from nearmt.building.repair import repair_with as repair
from nearmt.corpus import SentencePair
from nearmt.datastore import BuildProgress, Filter, Languages, Manifest, Snapshot, verify
from nearmt.models import Seq2Seq
from nearmt.retrieval.reader import Reader
from properties import examples

WORDS = ["rot", "grün", "blau", "haus", "baum"]
texts = strategies.lists(strategies.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)
unit_ids = strategies.sampled_from(["u1", "u2", None])
origins = strategies.sampled_from(["a", "b", None])
pairs = strategies.builds(SentencePair, texts, texts, unit_ids, origins)
K = 6


def new_store(folder: Path) -> None:
    folder.mkdir()
    Manifest(
        model={"name": "fake"}, languages=Languages("de", "en"), width=WIDTH, build=BuildProgress([], is_complete=True)
    ).save(folder)


class ExpectedStore:
    """The expected contents of a store as a list of units."""

    def __init__(self) -> None:
        self.units: list[SentencePair] = []

    def add(self, given: list[SentencePair]) -> None:
        for pair in given:
            same = [u for u in self.units if (u.source, u.origin) == (pair.source, pair.origin)]
            if pair.unit_id is not None:
                replaced = [u for u in same if u.unit_id == pair.unit_id]
            else:
                together = {(p.target, p.origin) for p in given if p.source == pair.source}
                replaced = [u for u in same if (u.target, u.origin) not in together]
            is_there = pair in self.units or (pair.unit_id is None and any(u.target == pair.target for u in same))
            if is_there and pair.unit_id is not None:
                continue
            self.units = [*(u for u in self.units if u not in replaced), *([] if is_there else [pair])]

    def nearest(self, query: np.ndarray, k: int, wanted: Filter | None = None) -> list[tuple[float, int]]:
        """Distance and token of the nearest entries; each pair counts once."""
        model, found = FakeModel(), []
        kept = [u for u in self.units if wanted is None or _passes(u, wanted)]
        for source, target in {(unit.source, unit.target) for unit in kept}:
            forced = model.force_decode(model.tokenize_sources([source]), model.tokenize_targets([target]))
            keys = forced.states.numpy().astype(np.float16).astype(np.float32)
            distances = ((keys - query) ** 2).sum(axis=1)
            found += list(zip(distances.tolist(), forced.token_ids.tolist(), strict=True))
        return sorted(found)[:k]


def _passes(unit: SentencePair, wanted: Filter) -> bool:
    return (not wanted.only or unit.origin in wanted.only) and unit.origin not in wanted.exclude


class LivingStore(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.home = Path(tempfile.mkdtemp())
        self.folder = self.home / "s.store"
        new_store(self.folder)
        self.expected, self.editor, self.reader = ExpectedStore(), Editor(self.folder), Reader(self.folder)

    def teardown(self) -> None:
        if hasattr(self, "home"):
            shutil.rmtree(self.home)

    @rule(given=strategies.lists(pairs, min_size=1, max_size=5))
    def add(self, given: list[SentencePair]) -> None:
        self.editor.add(given, cast(Seq2Seq, FakeModel()))
        self.expected.add(given)

    @rule(unit_id=unit_ids, origin=origins, source=strategies.none() | texts)
    def remove(self, unit_id: str | None, origin: str | None, source: str | None) -> None:
        if unit_id is None and origin is None and source is None:
            return
        matching = [
            u
            for u in self.expected.units
            if (unit_id is None or u.unit_id == unit_id)
            and (origin is None or u.origin == origin)
            and (source is None or u.source == source)
        ]
        removed = self.editor.remove(unit_id=unit_id, origin=origin, source=source)
        assert removed.units == len(matching)
        sentences = {(u.source, u.target) for u in self.expected.units}
        self.expected.units = [u for u in self.expected.units if u not in matching]
        assert removed.sentences == len(sentences - {(u.source, u.target) for u in self.expected.units})

    @rule()
    def compact(self) -> None:
        compact(self.folder)
        assert Snapshot.open(self.folder).manifest.num_sentences == len(
            {(u.source, u.target) for u in self.expected.units}
        )

    @rule()
    def repair_an_intact_store(self) -> None:
        assert repair(self.folder).problems == ()

    @rule()
    def reopen(self) -> None:
        self.editor, self.reader = Editor(self.folder), Reader(self.folder)

    @rule(
        source=texts,
        prefix=texts,
        only=strategies.sampled_from([(), ("a",), ("b", "a")]),
        exclude=strategies.sampled_from([(), ("a",)]),
    )
    def search(self, source: str, prefix: str, only: tuple[str, ...], exclude: tuple[str, ...]) -> None:
        self.reader.refresh()
        model, wanted = FakeModel(), Filter(only, exclude)
        query = state_of(model.tokenize_sources([source])[0], model.tokenize_targets([prefix])[0][:-1])
        retriever = self.reader.retriever.filtered(wanted)
        near = retriever.search(torch.from_numpy(query).unsqueeze(0), K)
        further = self.expected.nearest(query, K + 1, wanted)
        expected = further[:K]
        assert int(near.found.sum()) == len(expected)
        distances = near.squared_distances[0, : len(expected)].tolist()
        np.testing.assert_allclose(distances, [distance for distance, _ in expected], rtol=1e-5)
        if len({round(distance, 4) for distance, _ in further}) == len(further):  # no ties
            assert near.token_ids[0, : len(expected)].tolist() == [token for _, token in expected]

    @invariant()
    def units_are_as_expected(self) -> None:
        snapshot = Snapshot.open(self.folder)
        assert sorted(snapshot.all_units(), key=repr) == sorted(self.expected.units, key=repr)

    @invariant()
    def checksums_match(self) -> None:
        assert verify(self.folder).is_sound


LivingStore.TestCase.settings = examples(15, suppressed=tuple(HealthCheck), stateful_step_count=40)


@pytest.fixture(autouse=True)
def _small_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the entries of a few sentences to the index already."""
    monkeypatch.setattr("nearmt.retrieval.search._ADDED_AT_ONCE", 8)


TestLivingStore = LivingStore.TestCase  # hundreds of steps; `make fuzz` runs many thousands
