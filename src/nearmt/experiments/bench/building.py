"""Measures build speed: force-decoding pairs into entries with each engine."""

from collections.abc import Callable, Mapping
from typing import Any

from nearmt.building.builder import BuildSettings
from nearmt.building.extract import extract_entries
from nearmt.corpus import SentencePair
from nearmt.experiments.bench.materials import timing_sources
from nearmt.experiments.bench.timing import interleaved
from nearmt.models import Seq2Seq

_SENTENCES = 256


def build_rates(
    models: Mapping[str, Seq2Seq], source_length: int, target_length: int, key_type: str, rounds: int
) -> dict[str, Any]:
    """Return engine → seconds for a few hundred sentences and the number of entries they gave."""
    runs = {name: _decoding(model, source_length, target_length, key_type) for name, model in models.items()}
    timings = interleaved(runs, rounds)
    entries = _SENTENCES * target_length
    return {name: {"median": t.median, "spread": t.spread, "entries": entries} for name, t in timings.items()}


def _decoding(model: Seq2Seq, source_length: int, target_length: int, key_type: str) -> Callable[[], object]:
    eos, vocabulary = model.eos_token_ids[0], model.vocabulary_size
    sources = timing_sources(_SENTENCES, source_length, vocabulary, eos)
    targets = timing_sources(_SENTENCES, target_length, vocabulary, eos)
    pairs = [SentencePair("", "")] * _SENTENCES
    batch_tokens = BuildSettings().batch_tokens
    return lambda: extract_entries(model, pairs, sources, targets, key_type=key_type, batch_tokens=batch_tokens)
