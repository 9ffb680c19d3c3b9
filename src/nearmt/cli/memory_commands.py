"""Commands that change a store or copy it: add, remove, compact, index, export."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nearmt.cli.info_output import index_text, say_due, warn_low_recall
from nearmt.cli.options import (
    Format,
    IndexMemory,
    MemoryFiles,
    MilvusUri,
    Overwrite,
    RunOptions,
    StoredModelOptions,
    StorePath,
    index_option,
    input_option,
    output_option,
)
from nearmt.cli.output import counts_text, number_of, print_json, reporting, say, size_text
from nearmt.cli.values import bytes_of
from nearmt.errors import SettingError
from nearmt.outputs import is_stream

if TYPE_CHECKING:
    from nearmt.datastore import Snapshot
    from nearmt.retrieval.indexing import IndexSettings

_STANDARD_OUTPUT = Path("/dev/stdout")


def add(
    store: StorePath,
    inputs: MemoryFiles,
    *,
    origin: Annotated[
        str | None, input_option("--origin", help="Origin of the pairs, instead of the one in the files.")
    ] = None,
    keep_both: Annotated[
        bool,
        input_option("--keep-both", help="Keep the stored translations of a source beside the added ones."),
    ] = False,
    format: Format = None,
    model: StoredModelOptions,
    run: RunOptions,
) -> None:
    """Add pairs to a store, or correct stored ones.

    A pair replaces the stored one with the same unit id, origin and source. A pair without a unit id replaces all
    stored translations of its source from the same origin.
    """
    from nearmt.store import Store

    run.set_threads()
    opened = Store(store)
    try:
        with reporting(run.quiet) as progress:
            added = opened.add(
                [Path(file) for file in inputs],
                origin=origin,
                model=model.request(),
                format=format,
                keep_both=keep_both,
                progress=progress,
            )
    except KeyboardInterrupt:
        say("interrupted: the pairs added so far are kept; run the same command to add the rest")
        raise typer.Exit(130) from None
    if run.as_json:
        print_json(added.as_dict())
        return
    counts = {
        "new": added.added,
        "corrected": added.replaced,
        "already stored": added.duplicates,
        "unchanged": added.unchanged,
        "too long": added.too_long,
        **added.dropped,
    }
    print(counts_text(counts))
    if added.competing:
        _say_competing(added.competing, added.competing_origins)
    say_due(opened.info()["health"], store)


def _say_competing(count: int, origins: Sequence[str]) -> None:
    """Say that added sources also have other translations from other origins."""
    first, others = origins[0], len(origins) - 1
    more = f" and {number_of(others, 'more origin')}" if others else ""
    if count == 1:
        what = "One of the added sources also has another translation"
    else:
        what = f"{count:,} of the added sources also have other translations"
    advice = f" Add the file with --origin {shlex.quote(first)} to replace those from there." if first else ""
    say(f"{what}, from {first or 'no origin'}{more}. All of them are used.{advice}")


@dataclass(frozen=True)
class _RemoveOptions:
    unit_id: Annotated[str | None, input_option("--unit", help="Remove the unit with this id.")] = None
    origin: Annotated[str | None, input_option("--origin", help="Remove units of this origin.")] = None
    source: Annotated[str | None, input_option("--source-text", help="Remove units with this source.")] = None
    target: Annotated[str | None, input_option("--target-text", help="Remove units with this target.")] = None


def remove(store: StorePath, wanted: _RemoveOptions, run: RunOptions) -> None:
    """Remove the units of a store that match all given options.

    Translations no longer use them. Their text stays in the files until nearmt compact.
    """
    from nearmt.store import Store

    opened = Store(store)
    removed = opened.remove(**vars(wanted))
    if run.as_json:
        print_json(removed.as_dict())
    elif removed.units:
        print(f"{number_of(removed.units, 'unit')} removed, {number_of(removed.sentences, 'sentence')} deleted")
        say_due(opened.info()["health"], store)
    if not removed.units:
        say("nearmt: no matching units")
        raise typer.Exit(2)


def compact(store: StorePath, run: RunOptions) -> None:
    """Rewrite the live data of a store with a new index; this also deletes removed text from its files.

    The store can be used and changed while this runs.
    """
    from nearmt.store import Store

    run.set_threads()
    with reporting(run.quiet) as progress:
        done = Store(store).compact(progress)
    if run.as_json:
        print_json(done.as_dict())
        return
    print(
        f"{number_of(done.sentences, 'sentence')}, {number_of(done.entries, 'entry', 'entries')}; "
        f"{number_of(done.removed_sentences, 'sentence')} left out; "
        f"{size_text(done.bytes_before)} before, {size_text(done.bytes_after)} now"
    )


@dataclass(frozen=True)
class _IndexOptions:
    index: Annotated[
        str | None,
        index_option(
            "--index",
            help="As for nearmt build; faiss chooses a faiss index by size. Default: as it is.",
            show_default=False,
        ),
    ] = None
    uri: MilvusUri = None
    num_probes: Annotated[
        int | None,
        index_option(
            "--probes", min=1, help="Inverted lists to search for each query. Default: as it is.", show_default=False
        ),
    ] = None
    reranked: Annotated[
        int | None,
        index_option(
            "--rerank", min=0, help="Candidates to re-rank by exact distance. Default: as it is.", show_default=False
        ),
    ] = None
    memory: IndexMemory = None
    retrieval: Annotated[
        str | None,
        index_option("--retrieval", help="sentences, tokens or both. Default: as it is.", show_default=False),
    ] = None

    def settings(self, snapshot: "Snapshot") -> "IndexSettings":
        """The present settings of a store with those that are given."""
        from nearmt.retrieval.indexing import IndexSettings
        from nearmt.retrieval.lists.building import is_lists

        present, settings = snapshot.manifest.index, IndexSettings.of(snapshot.manifest)
        is_for_tokens = any(option is not None for option in (self.index, self.uri, self.memory))
        if self.retrieval is not None:
            if self.retrieval == "sentences":
                settings = IndexSettings(max_k=settings.max_k)
            settings = replace(settings, retrieval=self.retrieval)
        elif settings.retrieval == "sentences" and is_for_tokens:
            settings = replace(settings, retrieval="tokens")
        if self.index is not None or self.uri is not None:
            factory = self.index if self.index != "faiss" else None if self.memory else _faiss_factory(snapshot)
            if present is not None and is_lists(factory) != present.is_lists:
                settings = replace(settings, num_probes=None, reranked=None)  # they were for the other kind
            settings = replace(settings, factory=factory, uri=self.uri, memory=None)
        if self.memory is not None:
            settings = replace(settings, memory=bytes_of("--memory", self.memory))
        return replace(
            settings,
            num_probes=settings.num_probes if self.num_probes is None else self.num_probes,
            reranked=settings.reranked if self.reranked is None else self.reranked,
        )


def _faiss_factory(snapshot: "Snapshot") -> str | None:
    """The faiss index for a store of this size; None if every store of this kind gets one unless told otherwise."""
    from nearmt.retrieval.index.faiss_index import choose_factory
    from nearmt.retrieval.lists.building import suits_lists

    return choose_factory(len(snapshot), snapshot.key_code.dims) if suits_lists(snapshot) else None


def index(store: StorePath, indexing: _IndexOptions, run: RunOptions) -> None:
    """Rebuild the index of a store, with other settings or in another place: in Milvus, or with faiss.

    The store can be used and changed while this runs; trained networks are kept.
    """
    from nearmt.store import Store

    run.set_threads()
    opened = Store(store)
    settings = indexing.settings(opened.snapshot())
    try:
        with reporting(run.quiet) as progress:
            described = opened.index(settings, progress)
    except KeyboardInterrupt:
        say("interrupted: the store keeps its old index; in Milvus the same command continues from here")
        raise typer.Exit(130) from None
    if run.as_json:
        print_json(described)
        return
    print(index_text(described["index"] or {}, described["sentence_index"]))
    warn_low_recall({**described, "adaptation": None})


def export(
    store: StorePath,
    *,
    tmx: Annotated[Path, output_option("--tmx", help="File to write, or - for standard output.")],
    overwrite: Overwrite = False,
    run: RunOptions,
) -> None:
    """Write the memory of a store as TMX, with unit ids, origins and dates."""
    from nearmt.store import Store

    path = _STANDARD_OUTPUT if str(tmx) == "-" else tmx
    if run.as_json and path == _STANDARD_OUTPUT:
        raise SettingError("--json and the TMX cannot both go to standard output: give --tmx a file")
    count = Store(store).export_tmx(path, overwrite=overwrite)
    if run.as_json:
        print_json({"units": count, "file": str(tmx)})
        return
    where = "standard output" if str(tmx) == "-" else tmx
    written = f"{number_of(count, 'unit')} written to {where}"
    if is_stream(path):
        say(written, run.quiet)  # standard output may be that stream
    elif not run.quiet:
        print(written)
