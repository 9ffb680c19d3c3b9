"""Times a store with its own model on real text: the model alone, with the store's method, and in other systems.

The table own takes single sentences, the table job a whole file.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from nearmt.decoding.decoder import Decoder
from nearmt.errors import SettingError
from nearmt.experiments.bench.systems import Count
from nearmt.experiments.bench.timing import interleaved, summarize
from nearmt.models import Seq2Seq
from nearmt.progress import Progress
from nearmt.translator import Translator

_SENTENCES = 64


def own_text(
    translator: Translator,
    text: Path,
    batches: Sequence[int],
    rounds: int,
    progress: Progress,
    others: Mapping[str, Count],
) -> dict[str, Any]:
    """Return batch size → system → seconds and output tokens; `others` are systems to compare with."""
    texts, sources = real_sources(text, translator.model)
    results = {}
    for number, batch in enumerate(batches):
        progress("real text", number, len(batches))
        decoders = _decoders(translator, batch)
        runs: dict[str, Callable[[], int]] = {
            name: partial(num_tokens, decoders[name], sources, texts) for name in decoders
        }
        runs |= {name: partial(run, sources, batch) for name, run in others.items()}
        timings = summarize(interleaved(runs, rounds))
        results[str(batch)] = {
            name: {**timings[name], "sentences": len(sources), "tokens": run()} for name, run in runs.items()
        }
    progress("real text", len(batches), len(batches))
    return results


def whole_job(translator: Translator, text: Path, rounds: int, progress: Progress) -> dict[str, Any]:
    """Time a whole file in its own order: the model alone, the store's method, and exact matches reused as well."""
    texts = real_texts(text)
    model, readers, decoding = translator.model, translator.readers, translator.decoding
    translators = {"base": Translator(readers, model=model, method="base", decoding=decoding)}
    if translator.method is not None:
        name = translator.method.name
        translators[name] = translator
        reusing = Translator(readers, model=model, decoding=decoding, exact="reuse")
        translators[f"{name}, exact matches reused"] = reusing
    runs = {name: partial(one.translate, texts) for name, one in translators.items()}
    done = iter(range(len(runs) * (rounds + 1)))
    timings = interleaved(runs, rounds, on_run=lambda: progress("whole file", next(done) + 1, len(runs) * (rounds + 1)))
    num_reused = sum(translator.exact_match(line) is not None for line in texts)
    return {"segments": len(texts), "exact_matches": num_reused, "systems": summarize(timings)}


def real_texts(text: Path) -> list[str]:
    """The sentences of a file, one per line."""
    try:
        return [line for line in text.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"{text} cannot be read as UTF-8 text") from error


def real_sources(text: Path, model: Seq2Seq) -> tuple[list[str], list[list[int]]]:
    """The first sentences of a file that the model can translate, as texts and as token ids."""
    lines = real_texts(text)[:_SENTENCES]
    tokenized = zip(lines, model.tokenize_sources(lines), strict=True)
    kept = [(line, source) for line, source in tokenized if len(source) <= model.max_source_tokens]
    if not kept:
        raise SettingError(f"{text} has no sentence that the model can translate")
    return [line for line, _ in kept], [source for _, source in kept]


def _decoders(translator: Translator, batch: int) -> dict[str, Decoder]:
    model, method, retriever = translator.model, translator.method, translator.retriever
    decoding = replace(translator.decoding, batch_size=batch)
    found = {"base": Decoder(model, None, None, decoding)}
    if method is not None:
        found[method.name] = Decoder(model, retriever, method, decoding)
    return found


def num_tokens(decoder: Decoder, sources: list[list[int]], texts: list[str]) -> int:
    """Decode, and return the number of output tokens."""
    return sum(len(best[0].token_ids) for best in decoder.decode(sources, texts=texts))
