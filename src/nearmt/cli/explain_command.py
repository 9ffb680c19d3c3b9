"""`nearmt explain`: the evidence behind each token of a translation."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from nearmt.cli.options import (
    BeamOptions,
    MethodOptions,
    ModelOptions,
    RetrievalOptions,
    RunOptions,
    StorePath,
    output_option,
)
from nearmt.cli.output import print_json, warn_empty_filter
from nearmt.errors import SettingError

if TYPE_CHECKING:
    from nearmt.decoding.evidence import TokenEvidence
    from nearmt.methods.mixture import Method


def explain(
    store: StorePath,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Sentence to translate.")],
    *,
    model: ModelOptions,
    retrieval: RetrievalOptions,
    method: MethodOptions,
    decoding: BeamOptions,
    neighbors: Annotated[int, output_option("--neighbors", min=0, help="Neighbours to show for each token.")] = 3,
    run: RunOptions,
) -> None:
    """Translate one sentence and show which stored pairs each token comes from."""
    from nearmt.decoding.decoder import DecodingSettings
    from nearmt.translator import Translator

    run.set_threads()
    if not text.strip():
        raise SettingError("there is no sentence to explain: the text is empty")
    translator = Translator(
        [store, *(retrieval.also or [])],
        model=model.request(),
        method=method.request(),
        filter=retrieval.filter(),
        decoding=DecodingSettings(beam=decoding.beam(), batch_size=1),
    )
    result = translator.explain(text)
    if run.as_json:
        tokens = [asdict(token) for token in result.tokens]
        print_json({"source": result.source, "text": result.text, "score": result.score, "tokens": tokens})
        return
    print(f"{result.text}\n")
    print(f"{_method_text(translator.method)}\n")
    warn_empty_filter(translator)
    for token in result.tokens:
        _print_token(token, neighbors)


def _method_text(method: "Method | None") -> str:
    """The method and the settings that its weights depend on: e_i = exp(-(d_i - d_1) / T)."""
    from nearmt.methods.registry import describe_method

    settings = describe_method(method)
    damping = settings.get("guard")
    shown = {"K": settings.get("max_k", settings.get("k")), "T": settings.get("temperature")}
    parts = [f"{name} {value:g}" for name, value in shown.items() if value is not None]
    parts += [f"damping {damping['strength']:g}"] if damping else []
    return ", ".join([f"method {method.name if method is not None else 'base'}", *parts])


def _print_token(token: "TokenEvidence", num_neighbors: int) -> None:
    mark = " " if token.is_models_first_choice else "*"
    first, probability = token.nmt_first_choices[0]
    instead = "" if token.is_models_first_choice else f", which would say {first} ({probability:.0%})"
    print(f"{mark} {token.token:<16} {token.probability:4.0%}   the model alone {token.nmt_probability:.0%}{instead}")
    sizes = "  ".join(f"{size}: {probability:.2f}" for size, probability in token.size_probabilities.items())
    counts = f"   number of neighbours {sizes}" if len(token.size_probabilities) > 2 else ""
    print(f"    model's share {token.nmt_share:.2f}{counts}")
    for neighbor in token.neighbors[:num_neighbors]:
        segment = neighbor.segment
        where = " ".join(part for part in (segment.origin, segment.unit_id) if part)
        print(
            f"    {neighbor.weight:.3f}  d² {neighbor.squared_distance:<8.3g} {neighbor.token:<14} "
            f"{segment.source} → {segment.target}  [{where}]"
        )
