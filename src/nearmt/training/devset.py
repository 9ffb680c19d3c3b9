"""Dev and test sets, and the cache of the neighbours and probabilities of every dev token."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nearmt.building.extract import batches_by_length
from nearmt.corpus import DropCounts, SentencePair, normalise_space, read_pairs
from nearmt.datastore import Languages, Snapshot, TextLookup
from nearmt.errors import CorpusError, SettingError
from nearmt.evaluation.held_out import HeldOutSet
from nearmt.methods.retrieved import top_probabilities
from nearmt.models import Seq2Seq
from nearmt.progress import Progress, silent
from nearmt.retrieval.modes import StoreRetriever
from nearmt.training.cache import NeighborCache

# A file, several files (two plain-text files are read in parallel), or pairs.
Pairs = str | Path | Sequence[Path] | Iterable[SentencePair | tuple[str, str]]

MAX_MEMORY_SENTENCES = 2000
_MAX_BLOCKS, _BLOCK_SENTENCES = 5, 10  # of held-out sentences: at most so many blocks, none smaller than that
_CACHED_TOKENS = 2048
_PROJECTED_ROWS = 512


@dataclass(frozen=True)
class LoadedPairs:
    """A dev or test set: its pairs, their origin, and the numbers of dropped pairs by reason."""

    pairs: list[SentencePair]
    origin: str
    dropped: dict[str, int]


def load_pairs(pairs: Pairs, languages: Languages, format: str | None = None) -> LoadedPairs:
    """Pairs from a file or from memory."""
    drops = DropCounts()
    items: list[Any] = [Path(pairs)] if isinstance(pairs, str | Path) else list(pairs)
    if items and all(isinstance(item, Path) for item in items):
        read = list(
            read_pairs(
                items,
                source_lang=languages.source,
                target_lang=languages.target,
                drops=drops,
                format=format,
                keep_identical=True,
            )
        )
        origin = ", ".join("standard input" if str(path) == "-" else path.name for path in items)
    else:
        given = [pair if isinstance(pair, SentencePair) else SentencePair(*pair) for pair in items]
        clean = [replace(p, source=normalise_space(p.source), target=normalise_space(p.target)) for p in given]
        read = [pair for pair in clean if pair.source and pair.target]
        if len(read) < len(given):
            drops.add("empty", len(given) - len(read))
        origin = f"{len(read)} given pairs"
    if not read:
        raise CorpusError(f"{origin} has no usable pair")
    return LoadedPairs(read, origin, drops.as_dict())


@dataclass(frozen=True)
class DevSet:
    """Sentences to train on, and for each the stored sentences that must not be retrieved for it."""

    pairs: list[SentencePair]
    sources: list[list[int]]
    targets: list[list[int]]
    excluded: list[np.ndarray | None]
    origin: str

    def __len__(self) -> int:
        return len(self.pairs)

    def held_out(self, sentence_ids: Sequence[int]) -> HeldOutSet:
        """Some of the sentences, to translate and score."""
        excluded = [self.excluded[i] for i in sentence_ids]
        return HeldOutSet(
            [self.pairs[i] for i in sentence_ids],
            [self.sources[i] for i in sentence_ids],
            excluded if any(sentences is not None for sentences in excluded) else None,
        )


def held_out_blocks(num_sentences: int, share: float, seed: int = 1) -> list[int]:
    """The sentences to hold out, ascending: a few blocks of adjacent ones, one in each part of the set.

    Adjacent sentences are usually of one document. If they were on both sides, a network could be selected for what it
    has learnt of a document by heart.
    """
    count = min(num_sentences, max(1, round(num_sentences * share)))
    num_blocks = min(_MAX_BLOCKS, max(1, count // _BLOCK_SENTENCES))
    rng, chosen = random.Random(seed), list[int]()
    for block in range(num_blocks):
        start, end = (num_sentences * number // num_blocks for number in (block, block + 1))
        size = min(end - start, count * (block + 1) // num_blocks - count * block // num_blocks)
        first = rng.randint(start, end - size)
        chosen += range(first, first + size)
    return chosen


def evenly(numbers: Sequence[int], count: int) -> list[int]:
    """At most `count` of some numbers, from all parts of the sequence."""
    count = min(count, len(numbers))
    return [numbers[len(numbers) * i // count] for i in range(count)]


def dev_from_pairs(model: Seq2Seq, snapshot: Snapshot, pairs: Sequence[SentencePair], origin: str) -> DevSet:
    """A separate dev set. Pairs that are also in the store are searched without their own entries."""
    lookup = TextLookup(snapshot)
    return _dev_set(model, list(pairs), [lookup.same_pair(pair) for pair in pairs], origin)


def dev_from_memory(model: Seq2Seq, snapshot: Snapshot, seed: int = 1) -> DevSet:
    """Sentences of the memory, each searched without itself and without sentences of the same source or target."""
    alive = snapshot.live_sentence_ids.tolist()
    count = min(MAX_MEMORY_SENTENCES, len(alive))
    chosen = sorted(random.Random(seed).sample(alive, count))
    pairs = [snapshot.text(i) for i in chosen]
    lookup = TextLookup(snapshot)
    excluded = [lookup.same_source_or_target(pair) for pair in pairs]
    return _dev_set(model, pairs, excluded, f"{count} {'sentence' if count == 1 else 'sentences'} of the memory itself")


def _dev_set(model: Seq2Seq, pairs: list[SentencePair], excluded: Sequence[np.ndarray], origin: str) -> DevSet:
    sources = model.tokenize_sources([pair.source for pair in pairs])
    targets = model.tokenize_targets([pair.target for pair in pairs])
    max_target_tokens = model.max_target_tokens - len(model.forced_prefix)
    first = {(pair.source, pair.target): i for i, pair in reversed(list(enumerate(pairs)))}
    fits = [
        i
        for i in range(len(pairs))
        if len(sources[i]) <= model.max_source_tokens and len(targets[i]) <= max_target_tokens
    ]
    # A duplicate pair must not be on both sides of the held-out split.
    kept = [i for i in fits if first[pairs[i].source, pairs[i].target] == i]
    if len(kept) < 2:
        raise SettingError(f"{origin}: training needs at least two sentences, and preferably a few hundred")
    return DevSet(
        [pairs[i] for i in kept],
        [sources[i] for i in kept],
        [targets[i] for i in kept],
        [excluded[i] if len(excluded[i]) else None for i in kept],
        origin,
    )


def collect_cache(
    model: Seq2Seq, retriever: StoreRetriever, dev: DevSet, max_k: int, progress: Progress = silent
) -> NeighborCache:
    """Force-decode the dev set and retrieve the neighbours of every token."""
    parts = []
    done = 0
    for batch in batches_by_length(dev.sources, dev.targets, _CACHED_TOKENS):
        forced = model.force_decode(batch.sources, batch.targets)
        sentences = torch.tensor(batch.rows)[forced.rows.cpu()]
        search = retriever.start([dev.pairs[i].source for i in batch.rows], [dev.excluded[i] for i in batch.rows])
        neighbors = search.search(forced.states, forced.rows.cpu(), max_k)
        for start in range(0, len(forced.states), _PROJECTED_ROWS):  # to bound memory: vocabularies are large
            rows = slice(start, start + _PROJECTED_ROWS)
            near, gold = neighbors.rows(rows), forced.token_ids[rows].cpu()
            log_probs = model.project(forced.states[rows]).log_softmax(dim=1).cpu()
            parts.append(
                NeighborCache(
                    neighbors=near,
                    gold=gold,
                    sentence_ids=sentences[rows],
                    positions=forced.positions[rows].cpu(),
                    gold_probability=log_probs.gather(1, gold.unsqueeze(1)).squeeze(1).exp(),
                    neighbor_probabilities=log_probs.gather(1, near.token_ids).exp(),
                    top_probabilities=top_probabilities(log_probs),
                    states=forced.states[rows].cpu().half(),
                )
            )
        done += len(batch.rows)
        progress("retrieving", done, len(dev))
    return NeighborCache.concatenated(parts)
