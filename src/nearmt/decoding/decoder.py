"""Beam search over the mixture of model and neighbours: tokenised sources in, hypotheses out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from nearmt.decoding.beam import BeamSettings, Hypothesis, Shifted, beam_search
from nearmt.errors import SettingError
from nearmt.methods.damping import DistanceTracker
from nearmt.methods.mixer import Logits, Mixer
from nearmt.methods.mixture import Method, add_knn_mass
from nearmt.methods.network import Network
from nearmt.methods.retrieved import Retrieved, RunningDistance
from nearmt.models import Seq2Seq
from nearmt.retrieval.compiled_search import CompiledSearch
from nearmt.retrieval.merged import AnyRetriever, Search
from nearmt.retrieval.neighbors import Neighbors, UnfilledArrays
from nearmt.retrieval.search import Excluded


@dataclass(frozen=True)
class DecodingSettings:
    """The defaults are the paper's: beam 4, length penalty 0.6, at most 1.2 · source length + 10 tokens."""

    beam: BeamSettings = field(default_factory=BeamSettings)
    batch_size: int = 32
    length_factor: float = 1.2
    length_extra: int = 10

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise SettingError(f"`batch_size` must be at least 1, not {self.batch_size}")


class Decoder:
    """Translates token ids. Without a method it decodes with the model alone."""

    def __init__(
        self,
        model: Seq2Seq,
        retriever: AnyRetriever | None = None,
        method: Method | None = None,
        settings: DecodingSettings | None = None,
    ) -> None:
        if (method is None) != (retriever is None):
            raise SettingError("give a method and a retriever, or neither")
        self.model, self.retriever, self.method = model, retriever, method
        self.settings = settings or DecodingSettings()

    def max_new_tokens(self, source: Sequence[int]) -> int:
        """The maximum length of a translation of this source, EOS and forced tokens included."""
        wanted = int(self.settings.length_factor * len(source) + self.settings.length_extra)
        return max(1, min(wanted, self.model.max_target_tokens - 1))

    def decode(
        self,
        sources: Sequence[Sequence[int]],
        excluded: Excluded | None = None,
        on_done: Callable[[int], None] = lambda sentences: None,
        texts: Sequence[str] | None = None,
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of each source, best first, in the order of the sources.

        `excluded` lists, for each source, stored sentences that must not be retrieved for it. `texts` are the sources
        as text, which retrieval by sentences needs.
        """
        results: list[list[Hypothesis]] = [[] for _ in sources]
        order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))  # batches of similar length
        for start in range(0, len(order), self.settings.batch_size):
            rows = order[start : start + self.settings.batch_size]
            without = [excluded[i] for i in rows] if excluded is not None else None
            of_batch = [texts[i] for i in rows] if texts is not None else None
            found = self._decode_batch([sources[i] for i in rows], of_batch, without)
            for i, hypotheses in zip(rows, found, strict=True):
                results[i] = hypotheses
            on_done(min(start + self.settings.batch_size, len(order)))
        return results

    def _decode_batch(
        self,
        sources: Sequence[Sequence[int]],
        texts: Sequence[str] | None,
        excluded: Excluded | None,
    ) -> list[list[Hypothesis]]:
        search = self.retriever.start(texts, excluded) if self.retriever is not None else None
        session, rules = self.model.start_decoding(sources), self.model.rules
        damping = self.method.damping if isinstance(self.method, Network) else None
        tracker = DistanceTracker(damping.scale if damping is not None else 1.0)
        mixer = self._mixer()

        def step(
            token_ids: torch.Tensor,
            parents: torch.Tensor,
            prefixes: torch.Tensor,
            is_last: torch.Tensor,
            sentences: torch.Tensor,
        ) -> Shifted:
            output = session.step(token_ids, parents)
            # In place: with a large vocabulary, allocating memory costs more than the computation.
            values, shift, maxima = output.logits, output.shift, output.maxima
            if shift is None:
                torch.log_softmax(values, dim=1, out=values)
            is_forced = rules.forced_token(prefixes.shape[1] - 1) is not None
            (tracker if mixer is None else mixer).reorder(parents.cpu())
            if search is not None and not is_forced:
                if mixer is not None:
                    near = self.search_arrays(search, output.states, sentences.cpu())
                    shift = self.mix(mixer, Logits(values, shift, maxima), near)
                else:
                    neighbors = self.search(search, output.states, sentences.cpu())
                    log_probs = values if shift is None else values.add_(shift.unsqueeze(1))
                    values, shift = self.mixed(log_probs, output.states, neighbors, tracker.add(neighbors))[:2]
                    maxima = None
            if is_forced or rules.looks_at_values(is_last):
                values, shift, maxima = values if shift is None else values.add_(shift.unsqueeze(1)), None, None
            return Shifted(rules.apply(prefixes, values, is_last), shift, maxima)

        return beam_search(
            step,
            max_new_tokens=[self.max_new_tokens(source) for source in sources],
            start_token_id=self.model.start_token_id,
            eos_token_ids=self.model.eos_token_ids,
            settings=self.settings.beam,
            device=self.model.device,
        )

    def search(self, search: Search, states: torch.Tensor, sources: torch.Tensor) -> Neighbors:
        """The neighbours of each row, which belongs to source `sources[i]` of the batch."""
        assert self.method is not None
        return search.search(states, sources, self.method.max_k)

    def search_arrays(self, search: Search, states: torch.Tensor, sources: torch.Tensor) -> Neighbors | UnfilledArrays:
        """The same for a compiled mixture, which runs the search itself where the search is compiled too."""
        assert self.method is not None
        find = search.search_arrays if isinstance(search, CompiledSearch) else search.search
        return find(states, sources, self.method.max_k)

    def _mixer(self) -> Mixer | None:
        """Compiled code for the mixture, if there is any for the method and the model's device."""
        if self.method is None or self.retriever is None or not Mixer.supports(self.method):
            return None
        return Mixer(self.method, self.retriever) if self.model.device.type == "cpu" else None

    def mix(self, mixer: Mixer, logits: Logits, neighbors: Neighbors | UnfilledArrays) -> torch.Tensor:
        """Mix the neighbours in with compiled code; the logits are overwritten. Returns the new shift, (rows,)."""
        return mixer.mix(logits, neighbors)

    def mixed(
        self, log_probs: torch.Tensor, states: torch.Tensor, neighbors: Neighbors, running: RunningDistance
    ) -> Shifted:
        """Mix the neighbours in; `log_probs` is overwritten."""
        assert self.method is not None
        assert self.retriever is not None
        weights = self.method.weigh(Retrieved.at(states, log_probs, neighbors, self.retriever, running))
        token_ids = neighbors.token_ids[:, : weights.neighbor_weights.shape[1]]
        # Search and weighting run on the CPU, whatever the model runs on.
        device = log_probs.device
        return Shifted(log_probs, add_knn_mass(log_probs, weights.to(device), token_ids.to(device)))

    def texts(self, hypotheses: Sequence[list[Hypothesis]]) -> list[str]:
        """The best hypothesis of each sentence as plain text."""
        return self.model.detokenize([best[0].token_ids for best in hypotheses])
