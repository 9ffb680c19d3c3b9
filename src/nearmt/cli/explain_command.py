"""The command that shows why each word came out."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from nearmt.cli.options import (
    Also,
    AsJson,
    Beam,
    EarlyStopping,
    EngineOption,
    Exclude,
    K,
    LengthPenalty,
    MethodName,
    ModelOption,
    Offline,
    Only,
    Share,
    Since,
    StorePath,
    Temperature,
    Threads,
    Until,
    decoding_settings,
    set_threads,
)
from nearmt.cli.output import print_json

if TYPE_CHECKING:
    from nearmt.decoding.evidence import TokenEvidence


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command("explain", epilog='Example: nearmt explain client.store "Die Tabelle ist gesperrt."')(explain)


def explain(
    store: StorePath,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The sentence to translate.")],
    model: ModelOption = None,
    offline: Offline = False,
    engine: EngineOption = None,
    method: MethodName = "auto",
    k: K = None,
    temperature: Temperature = None,
    share: Share = None,
    also: Also = None,
    only: Only = None,
    exclude: Exclude = None,
    since: Since = None,
    until: Until = None,
    neighbors: Annotated[int, typer.Option("--neighbors", min=0, help="Neighbours shown for each token.")] = 3,
    beam: Beam = 4,
    length_penalty: LengthPenalty = 0.6,
    early_stopping: EarlyStopping = "false",
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Translate one sentence and show, token by token, what the memory had to do with it."""
    from nearmt.datastore import Filter
    from nearmt.translator import Translator

    set_threads(threads)
    settings = decoding_settings(beam, length_penalty, early_stopping, 1)
    translator = Translator(
        [store, *(also or [])],
        model=model,
        method=method,
        k=k,
        temperature=temperature,
        knn_share=share,
        filter=Filter(tuple(only or ()), tuple(exclude or ()), since, until),
        decoding=settings,
        offline=offline,
        engine=engine,
    )
    result = translator.explain(text)
    if as_json:
        tokens = [asdict(token) for token in result.tokens]
        print_json({"source": result.source, "text": result.text, "score": result.score, "tokens": tokens})
        return
    print(f"{result.text}\n")
    for token in result.tokens:
        _print_token(token, neighbors)


def _print_token(token: "TokenEvidence", num_neighbors: int) -> None:
    mark = " " if token.is_models_first_choice else "*"
    first, probability = token.nmt_first_choices[0]
    instead = "" if token.is_models_first_choice else f", which would say {first} ({probability:.0%})"
    print(f"{mark} {token.token:<16} {token.probability:4.0%}   the model alone {token.nmt_probability:.0%}{instead}")
    sizes = "  ".join(f"{size}: {probability:.2f}" for size, probability in token.size_probabilities.items())
    print(f"    model's share {token.nmt_share:.2f}   neighbours believed {sizes}")
    for neighbor in token.neighbors[:num_neighbors]:
        segment = neighbor.segment
        where = " ".join(part for part in (segment.origin, segment.unit_id) if part)
        print(f"    {neighbor.weight:.3f}  d² {neighbor.squared_distance:<8.3g} {neighbor.token:<14} "
              f"{segment.source} → {segment.target}  [{where}]")  # fmt: skip
