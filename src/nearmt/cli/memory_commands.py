"""Commands that change a store: add, remove, compact, index; and export."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from nearmt.cli.description import index_text, say_recall
from nearmt.cli.options import (
    AsJson,
    Force,
    Format,
    MemoryOption,
    ModelOption,
    Offline,
    Quiet,
    StorePath,
    Threads,
    UriOption,
    bytes_of,
    set_threads,
)
from nearmt.cli.output import print_json, reporting, say
from nearmt.outputs import is_stream


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command("add", epilog="Example: nearmt add client.store confirmed-today.tmx --origin client-a")(add)
    app.command("remove", epilog="Example: nearmt remove client.store --origin client-a")(remove)
    app.command("compact", epilog="Example: nearmt compact client.store")(compact)
    app.command("index", epilog="Example: nearmt index client.store --index milvus:HNSW --uri http://localhost:19530")(
        index
    )
    app.command("export", epilog="Example: nearmt export client.store --tmx client.tmx")(export)


def add(
    store: StorePath,
    inputs: Annotated[
        list[Path], typer.Argument(metavar="FILE…", help="TMX, XLIFF, PO, TSV, JSONL, two aligned files, or -.")
    ],
    origin: Annotated[
        str | None, typer.Option("--origin", help="Where they come from, instead of what the files say.")
    ] = None,
    model: ModelOption = None,
    offline: Offline = False,
    keep_both: Annotated[
        bool,
        typer.Option("--keep-both", help="Keep the stored translations of a source beside the added ones."),
    ] = False,
    format: Format = None,
    threads: Threads = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Add pairs to a store, or correct what it has.

    A pair replaces the stored one with the same unit id, origin and source. A pair without a unit id replaces all
    that the store has for its source from the same origin.
    """
    from nearmt.store import Store

    set_threads(threads)
    opened = Store(store)
    try:
        with reporting(quiet) as progress:
            added = opened.add(
                inputs,
                origin=origin,
                model=model,
                format=format,
                offline=offline,
                keep_both=keep_both,
                progress=progress,
            )
    except KeyboardInterrupt:
        say("interrupted: what was added so far stays; the same command adds the rest")
        raise typer.Exit(130) from None
    if as_json:
        print_json(added.as_dict())
        return
    told = {
        "new": added.added,
        "corrected": added.replaced,
        "stored before": added.duplicates,
        "unchanged": added.unchanged,
        "too long": added.too_long,
        **added.dropped,
    }
    print(", ".join(f"{count:,} {what}" for what, count in told.items() if count))
    if added.competing:
        _say_competing(added.competing, added.competing_origins)
    _say_due(opened.info()["health"], store)


def _say_competing(count: int, origins: Sequence[str]) -> None:
    """Added pairs whose source has another translation from another origin."""
    first, others = origins[0], len(origins) - 1
    more = f" and {others} more {'origins' if others > 1 else 'origin'}" if others else ""
    what = (
        f"{count:,} of the added sources also have other translations"
        if count > 1
        else ("One of the added sources also has another translation")
    )
    advice = f" Add the file with --origin {shlex.quote(first)} to replace those from there." if first else ""
    say(f"{what}, from {first or 'no origin'}{more}. All of them are used.{advice}")


def remove(
    store: StorePath,
    unit: Annotated[str | None, typer.Option("--unit", help="The unit with this id.")] = None,
    origin: Annotated[str | None, typer.Option("--origin", help="All that comes from there.")] = None,
    source_text: Annotated[str | None, typer.Option("--source-text", help="Pairs with this source.")] = None,
    target_text: Annotated[str | None, typer.Option("--target-text", help="Pairs with this target.")] = None,
    as_json: AsJson = False,
) -> None:
    """Remove units from a store; with several options, those that fit all of them.

    No later translation uses them. Their text stays in the files until nearmt compact.
    """
    from nearmt.store import Store

    opened = Store(store)
    removed = opened.remove(unit_id=unit, origin=origin, source=source_text, target=target_text)
    if as_json:
        print_json(removed.as_dict())
    else:
        print(f"{removed.units:,} units removed, {removed.sentences:,} sentences gone")
        _say_due(opened.info()["health"], store)
    if not removed.units:
        say("nearmt: nothing in the store fits")
        raise typer.Exit(2)


def compact(store: StorePath, threads: Threads = None, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Write what counts anew, with a new index: what was removed is in no file afterwards.

    Translations, additions and removals go on meanwhile.
    """
    from nearmt.store import Store

    set_threads(threads)
    with reporting(quiet) as progress:
        done = Store(store).compact(progress)
    if as_json:
        print_json(done.as_dict())
        return
    print(
        f"{done.sentences:,} sentences, {done.entries:,} entries; {done.removed_sentences:,} sentences left out; "
        f"{done.bytes_before / 1e6:,.1f} MB before, {done.bytes_after / 1e6:,.1f} MB now"
    )


def index(
    store: StorePath,
    index: Annotated[
        str | None,
        typer.Option(
            "--index", help="As for nearmt build, or faiss: chosen by size. Without it, the kind that it has."
        ),
    ] = None,
    uri: UriOption = None,
    probes: Annotated[int | None, typer.Option("--probes", min=1, help="Lists searched; else as it was.")] = None,
    rerank: Annotated[int | None, typer.Option("--rerank", min=0, help="Measured exactly; else as it was.")] = None,
    memory_limit: MemoryOption = None,
    threads: Threads = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Index a store anew, in another way or at another place: in Milvus, or with faiss again.

    Translations, additions and removals go on meanwhile; what was learned stays.
    """
    from dataclasses import replace

    from nearmt.retrieval.indexing import IndexSettings
    from nearmt.store import Store

    set_threads(threads)
    opened = Store(store)
    settings = IndexSettings.of(opened.manifest)
    if index is not None or uri is not None:
        settings = replace(settings, factory=None if index == "faiss" else index, uri=uri, memory=None)
    if memory_limit is not None:
        settings = replace(settings, memory=bytes_of("--memory", memory_limit))
    settings = replace(
        settings,
        num_probes=settings.num_probes if probes is None else probes,
        reranked=settings.reranked if rerank is None else rerank,
    )
    try:
        with reporting(quiet) as progress:
            described = opened.index(settings, progress)
    except KeyboardInterrupt:
        say("interrupted: the store keeps the index that it had; in Milvus the same command goes on from here")
        raise typer.Exit(130) from None
    if as_json:
        print_json(described)
        return
    print(index_text(described))
    say_recall({"index": described, "adaptation": None})


def export(
    store: StorePath,
    tmx: Annotated[Path, typer.Option("--tmx", help="A new file to write.")],
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write a store's memory as TMX, with unit ids, origins and dates."""
    from nearmt.store import Store

    count = Store(store).export_tmx(tmx, overwrite=force)
    if as_json:
        print_json({"units": count, "file": str(tmx)})
    elif is_stream(tmx):
        say(f"{count:,} units written to {tmx}")  # standard output may be where they went
    else:
        print(f"{count:,} units written to {tmx}")


def _say_due(health: dict[str, object], store: Path) -> None:
    """What the store asks for after a change."""
    reasons = health["compaction_due"]
    if isinstance(reasons, list) and reasons:
        say(f"Compaction is due ({'; '.join(reasons)}): run nearmt compact {store}")
    if health["training_due"]:
        say(f"The memory has changed much since Meta-k was trained: run nearmt train {store}")
