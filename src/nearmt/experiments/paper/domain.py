"""One domain of the experiments: its store, and its tokenised dev and test sets."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from nearmt.building.builder import BuildSettings, describe_inputs
from nearmt.corpus import SentencePair
from nearmt.datastore import TOKENS, Languages, Snapshot, partial_folder
from nearmt.errors import SettingError
from nearmt.evaluation.held_out import HeldOutSet
from nearmt.evaluation.matches import BestMatch, best_matches
from nearmt.experiments.paper.config import DomainConfig, PaperConfig
from nearmt.experiments.paper.selection import cut, limited_memory
from nearmt.experiments.paper.workspace import Workspace, as_key, digest, digest_pairs
from nearmt.models import Seq2Seq
from nearmt.progress import Progress, silent
from nearmt.retrieval.search import Retriever
from nearmt.store import Store, build
from nearmt.training.cache import NeighborCache
from nearmt.training.devset import DevSet, collect_cache, dev_from_pairs, held_out_blocks, load_pairs
from nearmt.training.train_store import AdaptationSettings


class TestSet:
    """The sentences to translate, without those too long for the model."""

    __test__ = False  # tells pytest that this is not a test

    def __init__(self, model: Seq2Seq, pairs: list[SentencePair]) -> None:
        self.held_out = HeldOutSet.from_pairs(model, pairs)
        self.pairs, self.sources = self.held_out.pairs, self.held_out.sources
        self.references = self.held_out.references
        self.key = digest_pairs(self.pairs)
        self.num_skipped = len(pairs) - len(self.held_out)

    def __len__(self) -> int:
        return len(self.pairs)


class Domain:
    """A domain with its store and data, each loaded on first use. A missing store is built."""

    def __init__(
        self,
        config: DomainConfig,
        paper: PaperConfig,
        model: Seq2Seq,
        workspace: Workspace,
        progress: Progress = silent,
    ) -> None:
        self.config, self.paper, self.model, self.progress = config, paper, model, progress
        self._workspace = workspace
        self.name = config.name
        self._build_settings = BuildSettings(  # as in the paper: states as they are, and all of them are searched
            key_type="float16",
            dims=None,
            retrieval=TOKENS,
            index=paper.index,
            num_probes=paper.num_probes,
            reranked=paper.reranked,
            max_k=paper.max_k,
        )
        identity = {key: value for key, value in model.identity.as_dict().items() if key not in ("name", "revision")}
        self.languages = Languages(model.source_lang, model.target_lang)
        self.memory: Sequence[Path] = config.memory
        if paper.memory_pairs is not None:
            self.memory = [limited_memory(config.memory, self.languages, paper.memory_pairs, workspace.folder)]
        memory = [item["sha256"] for item in describe_inputs(self.memory)]
        languages = [model.source_lang, model.target_lang]
        key: dict[str, Any] = {
            "model": identity,
            "languages": languages,
            "memory": memory,
            "build": as_key(self._build_settings),
        }
        if model.engine != "torch":
            key["engine"] = model.engine
        self._folder = workspace.store_folder(config.name, key)
        self.key = digest(key)

    def __repr__(self) -> str:
        return f"Domain({self.name!r})"

    @property
    def is_built(self) -> bool:
        return self._folder.exists()

    @property
    def partial_folder(self) -> Path:
        """Where a build is until it is finished."""
        return partial_folder(self._folder)

    @cached_property
    def store(self) -> Store:
        if not self.is_built:
            build(
                self.memory,
                model=self.model,
                out=self._folder,
                train=False,
                settings=self._build_settings,
                resume=True,
                progress=self._report,
            )
        return Store(self._folder)

    @cached_property
    def snapshot(self) -> Snapshot:
        return self.store.snapshot()

    @cached_property
    def retriever(self) -> Retriever:
        return Retriever(self.snapshot)

    @cached_property
    def _dev_pairs(self) -> tuple[list[SentencePair], list[SentencePair]]:
        """The dev set, and the part of the file that is the test set if there is no file for it."""
        pairs = load_pairs(self.config.dev, self.languages).pairs
        if self.config.test:
            return pairs, []
        assert self.paper.test_from_dev is not None
        border = cut(pairs, 1 - self.paper.test_from_dev)
        if not 0 < border < len(pairs):
            raise SettingError(f"{self.name}: dev has too few sentences to take the test set from it")
        return pairs[:border], pairs[border:]

    @cached_property
    def test(self) -> TestSet:
        pairs = load_pairs(self.config.test, self.languages).pairs if self.config.test else self._dev_pairs[1]
        return TestSet(self.model, pairs[: self.paper.test_sentences])

    @cached_property
    def best_matches(self) -> list[BestMatch]:
        """The most similar source of the memory for each test sentence."""
        key = {"matches": self.key, "by": "words", "test": self.test.key}
        found = self._workspace.get("matches", key, self._match)
        return [BestMatch(row, percent) for row, percent in found]

    def _match(self) -> list[tuple[int, int]]:
        sources, total = (pair.source for pair in self.snapshot.texts()), self.snapshot.manifest.num_sentences
        matches = best_matches(self.test.held_out.texts, sources, lambda done: self._report("matching", done, total))
        return [(match.row, match.percent) for match in matches]

    @property
    def num_dev_pairs(self) -> int:
        return len(self._dev_pairs[0])

    @cached_property
    def dev_key(self) -> str:
        return digest({"pairs": digest_pairs(self._dev_pairs[0]), "held_out": "blocks"})

    @cached_property
    def dev(self) -> DevSet:
        return dev_from_pairs(self.model, self.snapshot, self._dev_pairs[0], self.config.dev[0].name)

    @cached_property
    def cache(self) -> NeighborCache:
        return collect_cache(self.model, self.retriever, self.dev, self.paper.max_k, self._report)

    def _report(self, stage: str, done: int, total: int | None) -> None:
        self.progress(f"{self.name}: {stage}", done, total)

    @cached_property
    def held_out(self) -> list[int]:
        """The dev sentences that are not used for training."""
        return held_out_blocks(len(self.dev), AdaptationSettings.held_out_share)

    def parts(self, max_k: int, sentences: int | None = None) -> tuple[NeighborCache, NeighborCache]:
        """Return the parts of the dev cache for training, at most `sentences` sentences, and for selection."""
        nearest = self.cache.nearest(max_k)
        train_part, select_part = nearest.split(self.held_out)
        if self.paper.paper_protocol:
            train_part = select_part = nearest
        if sentences is not None:
            ids = torch.unique(train_part.sentence_ids)
            chosen = ids[torch.randperm(len(ids), generator=torch.Generator().manual_seed(1))[:sentences]]
            train_part = train_part.rows(torch.isin(train_part.sentence_ids, chosen))
            if self.paper.paper_protocol:
                select_part = train_part
        return train_part, select_part

    @property
    def num_training_sentences(self) -> int:
        """The number of dev sentences available for training."""
        return len(self.dev) - (0 if self.paper.paper_protocol else len(self.held_out))
