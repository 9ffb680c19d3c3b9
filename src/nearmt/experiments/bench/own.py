"""Times a store with its own model on real text: the model alone and with the store's method."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nearmt.decoding.decoder import Decoder
from nearmt.errors import SettingError
from nearmt.experiments.bench.timing import interleaved, summarize
from nearmt.progress import Progress
from nearmt.translator import Translator

_SENTENCES = 64


def own_text(
    translator: Translator, text: Path, batches: Sequence[int], rounds: int, progress: Progress
) -> dict[str, Any]:
    """Return batch size → system → seconds and output tokens."""
    try:
        lines = [line for line in text.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"{text} cannot be read as UTF-8 text") from error
    lines = lines[:_SENTENCES]
    tokenized = zip(lines, translator.model.tokenize_sources(lines), strict=True)
    fitting = [(line, source) for line, source in tokenized if len(source) <= translator.model.max_source_tokens]
    texts, sources = [line for line, _ in fitting], [source for _, source in fitting]
    if not sources:
        raise SettingError(f"{text} has no sentence that the model can translate")
    results = {}
    for number, batch in enumerate(batches):
        progress("real text", number, len(batches))
        decoders = _decoders(translator, batch)
        runs = {name: _decoding(decoder, sources, texts) for name, decoder in decoders.items()}
        timings = summarize(interleaved(runs, rounds))
        results[str(batch)] = {
            name: {
                **timings[name],
                "sentences": len(sources),
                "tokens": sum(len(best[0].token_ids) for best in decoder.decode(sources, texts=texts)),
            }
            for name, decoder in decoders.items()
        }
    progress("real text", len(batches), len(batches))
    return results


def _decoders(translator: Translator, batch: int) -> dict[str, Decoder]:
    model, method, retriever = translator.model, translator.method, translator.retriever
    decoding = replace(translator.decoding, batch_size=batch)
    assert method is not None
    return {
        "base": Decoder(model, None, None, decoding),
        method.name: Decoder(model, retriever, method, decoding),
    }


def _decoding(decoder: Decoder, sources: list[list[int]], texts: list[str]) -> Callable[[], object]:
    return lambda: decoder.decode(sources, texts=texts)
