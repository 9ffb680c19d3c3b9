"""The systems to time: our engines and methods, Hugging Face's generate, CTranslate2, and the original kNN-MT code."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nearmt.datastore import Snapshot
from nearmt.decoding.beam import BeamSettings, Shifted
from nearmt.decoding.decoder import Decoder, DecodingSettings
from nearmt.methods.metak import MetaK
from nearmt.methods.mixture import Method, neighbor_counts
from nearmt.methods.retrieved import RunningDistance
from nearmt.models import Seq2Seq
from nearmt.models.reference import load_for_generate, token_names
from nearmt.retrieval.index import build_index
from nearmt.retrieval.neighbors import Neighbors
from nearmt.retrieval.search import Retriever
from nearmt.translator import Translator

Run = Callable[[list[list[int]]], object]
Count = Callable[[list[list[int]], int], int]  # sources and batch size to the number of output tokens
ORIGINAL_INDEX, ORIGINAL_PROBES = "IVF4096,PQ64", 32
_WARM_UP_ROWS, _WARM_UP_K = 256, 32


class RealQueries(Retriever):
    """Searches for real states instead of those of a random model, which are far from all stored keys.

    All queries run once before any timing, so that the benchmark measures a warm process and not the first read of the
    keys from disk.
    """

    def __init__(self, snapshot: Snapshot, queries: torch.Tensor, **options: Any) -> None:
        super().__init__(snapshot, **options)
        self._queries, self._next = queries, 0
        for piece in torch.split(queries, _WARM_UP_ROWS):
            super().search(piece, min(_WARM_UP_K, len(snapshot)))

    def search(self, states: torch.Tensor, k: int, excluded: Sequence[np.ndarray | None] | None = None) -> Neighbors:
        rows = torch.arange(self._next, self._next + len(states)) % len(self._queries)
        self._next += len(states)
        return super().search(self._queries[rows], k, excluded)


class OriginalDecoder(Decoder):
    """Computes the mixture as the paper's code does: one distribution over the whole vocabulary per neighbour count."""

    def mixed(
        self, log_probs: torch.Tensor, states: torch.Tensor, neighbors: Neighbors, running: RunningDistance
    ) -> Shifted:
        method = self.method
        assert isinstance(method, MetaK)
        sizes = neighbor_counts(method.max_k)[1:]
        shares = method(method.inputs(neighbors)).exp()  # (rows, |S|)
        near = torch.stack([torch.arange(method.max_k) < size for size in sizes])  # (|S|, K)
        scores = (-neighbors.squared_distances / method.temperature).unsqueeze(1).masked_fill(~near, -1e9)
        votes = (scores.softmax(dim=2) * shares[:, 1:, None]).sum(dim=1)  # (rows, K)
        spread = torch.zeros(*votes.shape, log_probs.shape[1])  # (rows, K, vocabulary)
        spread.scatter_(2, neighbors.token_ids.unsqueeze(2), votes.unsqueeze(2))
        mixed: torch.Tensor = shares[:, :1] * log_probs.exp() + spread.sum(dim=1)
        return Shifted(mixed.log())


def fixed_length(beam: int, length: int, batch: int) -> DecodingSettings:
    """Return settings that make every output `length` tokens long."""
    return DecodingSettings(beam=BeamSettings(beam), batch_size=batch, length_factor=0, length_extra=length)


def ours(model: Seq2Seq, retriever: Retriever | None, method: Method | None, beam: int, length: int) -> Run:
    def run(sources: list[list[int]]) -> object:
        settings = fixed_length(beam, length, len(sources))
        return Decoder(model, retriever if method else None, method, settings).decode(sources)

    return run


def original(model: Seq2Seq, retriever: Retriever, method: MetaK, beam: int, length: int) -> Run:
    def run(sources: list[list[int]]) -> object:
        with torch.inference_mode():
            return OriginalDecoder(model, retriever, method, fixed_length(beam, length, len(sources))).decode(sources)

    return run


def original_retriever(snapshot: Snapshot, queries: torch.Tensor, on_progress: Callable[[int], None]) -> RealQueries:
    """Search the same store with the paper's index and its approximate distances."""
    index = build_index(snapshot, ORIGINAL_INDEX, ORIGINAL_PROBES, on_progress)
    return RealQueries(snapshot, queries, index=index, reranked=0)


def generate(folder: Path, beam: int, length: int) -> Run:
    """Hugging Face's generate in float32."""
    model = load_for_generate(folder)

    def run(sources: list[list[int]]) -> object:
        ids = torch.tensor(sources)
        with torch.inference_mode():
            return model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                num_beams=beam,
                max_new_tokens=length,
                length_penalty=0.6,
            )

    return run


def ctranslate2(folder: Path, converted: Path, beam: int, length: int, threads: int, vocabulary: int) -> Run | None:
    """CTranslate2 with int8 weights and a fixed output length; None if it is absent or cannot convert the model."""
    translate = _ctranslate2(folder, converted, beam, threads, vocabulary)
    if translate is None:
        return None

    def run(sources: list[list[int]]) -> object:
        lengths = translate(sources, {"min_decoding_length": length, "max_decoding_length": length})
        assert set(lengths) == {length}
        return lengths

    return run


def ctranslate2_on_text(folder: Path, converted: Path, decoding: DecodingSettings, model: Seq2Seq) -> Count | None:
    """CTranslate2 with int8 weights on real text, in the same batches as ours; None as above."""
    translate = _ctranslate2(folder, converted, decoding.beam.num_beams, torch.get_num_threads(), model.vocabulary_size)
    if translate is None:
        return None
    decoder = Decoder(model, settings=decoding)

    def run(sources: list[list[int]], batch: int) -> int:
        ordered, tokens = sorted(sources, key=lambda source: -len(source)), 0
        for start in range(0, len(ordered), batch):
            rows = ordered[start : start + batch]
            longest = max(map(decoder.max_new_tokens, rows))
            tokens += sum(length + 1 for length in translate(rows, {"max_decoding_length": longest}))  # and EOS
        return tokens

    return run


def others_on_text(translator: Translator, out: Path) -> dict[str, Count]:
    """Other systems with the model of a translator, if they are installed; `out` is for the files they need."""
    folder = Path(translator.model.identity.name)
    found = None
    if folder.is_dir():
        found = ctranslate2_on_text(folder, out / "ctranslate2-own", translator.decoding, translator.model)
    return {} if found is None else {"CTranslate2, int8": found}


def _ctranslate2(
    folder: Path, converted: Path, beam: int, threads: int, vocabulary: int
) -> Callable[[list[list[int]], dict[str, int]], list[int]] | None:
    """A function from sources and options to the lengths of the outputs."""
    try:
        import ctranslate2 as engine
        from ctranslate2.converters import TransformersConverter
    except ImportError:
        return None
    if not converted.exists():
        try:
            TransformersConverter(str(folder)).convert(str(converted), quantization="int8")
        except ValueError:
            return None
    translator = engine.Translator(str(converted), compute_type="int8", inter_threads=1, intra_threads=threads)
    names = token_names(folder, vocabulary)

    def translate(sources: list[list[int]], options: dict[str, int]) -> list[int]:
        texts = [[names[token] for token in source] for source in sources]
        results = translator.translate_batch(texts, beam_size=beam, length_penalty=0.6, max_batch_size=0, **options)
        return [len(result.hypotheses[0]) for result in results]

    return translate
