"""Commands that make, train, describe and check a store."""

import contextlib
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from nearmt.cli.description import adaptation_rows, print_info, say_doubts, say_recall
from nearmt.cli.options import (
    AsJson,
    EngineOption,
    Format,
    IndexOption,
    MemoryOption,
    ModelOption,
    Offline,
    Probes,
    Quiet,
    Rerank,
    StorePath,
    Threads,
    UriOption,
    bytes_of,
    names_of,
    ray_options,
    set_threads,
)
from nearmt.cli.output import print_json, reporting, say
from nearmt.cli.soundness import print_repaired, print_report


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command(
        "build", epilog="Example: nearmt build client.tmx --model Helsinki-NLP/opus-mt-de-en --out client.store"
    )(build)
    app.command("train", epilog="Example: nearmt train client.store dev.tmx")(train)
    app.command("info", epilog="Example: nearmt info client.store")(info)
    app.command("verify", epilog="Example: nearmt verify client.store")(verify)


def build(
    inputs: Annotated[
        list[str], typer.Argument(metavar="FILE…", help="TMX, XLIFF, PO, TSV, JSONL, two aligned files, or -.")
    ],
    model: Annotated[str, typer.Option("--model", help="Hugging Face id or folder of an encoder–decoder model.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the new store.")],
    source: Annotated[
        str | None, typer.Option("--source", help="Source language, where the model does not say.")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", help="Target language, where the model does not say.")
    ] = None,
    source_prefix: Annotated[str | None, typer.Option("--source-prefix", help="Text before every source (T5).")] = None,
    revision: Annotated[str | None, typer.Option("--revision", help="Revision of a hub model.")] = None,
    offline: Offline = False,
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            help="torch, int8, or auto: int8 where it is known to be faster; on Ray: ray, ray:torch or ray:int8.",
        ),
    ] = "auto",
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Workers that decode, with --engine ray (2).")
    ] = None,
    address: Annotated[
        str | None, typer.Option("--address", help="A running Ray cluster's, with --engine ray; else one starts here.")
    ] = None,
    gpus: Annotated[
        float | None, typer.Option("--gpus", min=0.0, help="GPUs for each worker, with --engine ray (0).")
    ] = None,
    dev: Annotated[
        list[Path] | None,
        typer.Option("--dev", help="Dev pairs to train on (may be given twice); else the memory itself."),
    ] = None,
    no_train: Annotated[bool, typer.Option("--no-train", help="Do not train Meta-k now.")] = False,
    max_k: Annotated[int, typer.Option("--max-k", min=1, help="Neighbours looked at for each token.")] = 32,
    index: IndexOption = None,
    uri: UriOption = None,
    probes: Probes = 32,
    rerank: Rerank = 96,
    memory_limit: MemoryOption = None,
    keys: Annotated[
        str, typer.Option("--keys", help="Type of the stored keys: float16, float32 or int8 (half the disk).")
    ] = "float16",
    format: Format = None,
    keep_identical: Annotated[
        bool, typer.Option("--keep-identical", help="Keep pairs whose source and target are the same.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an unfinished build.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing store once the new one is done.")] = False,
    threads: Threads = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Build a store from a translation memory and train it."""
    from nearmt.building.builder import BuildSettings
    from nearmt.models import Seq2Seq
    from nearmt.store import build as build_store
    from nearmt.training.train_store import AdaptationSettings

    set_threads(threads)
    settings = BuildSettings(
        key_type=keys, index=index, uri=uri, num_probes=probes, reranked=rerank, max_k=max_k,
        memory=bytes_of("--memory", memory_limit), keep_identical=keep_identical,
    )  # fmt: skip
    engine, cluster = ray_options(engine, workers=workers, address=address, gpus=gpus, threads=threads, offline=offline)

    def load() -> Seq2Seq:
        return Seq2Seq.load(
            model, revision=revision, source_lang=source, target_lang=target, source_prefix=source_prefix,
            offline=offline, engine=engine,
        )  # fmt: skip

    try:
        # Ray prints what befalls its workers, and standard output is for what was asked.
        with reporting(quiet) as progress, contextlib.redirect_stdout(sys.stderr):
            store = build_store(
                inputs, model=load, out=out, dev=dev or None, train=not no_train, settings=settings,
                adaptation=AdaptationSettings(max_k=max_k), format=format, resume=resume, force=force,
                cluster=cluster, progress=progress,
            )  # fmt: skip
    except KeyboardInterrupt:
        say("interrupted: the same command with --resume goes on from here")
        raise typer.Exit(130) from None
    described = store.info()
    if as_json:
        print_json(described)
        return
    print_info(described)
    if described["adaptation"] is not None:
        say_doubts(described["adaptation"])
    elif not no_train:
        say("The memory is too small to learn from itself: train with nearmt train and a dev set, or use --method.")
    say_recall(described)


def train(
    store: StorePath,
    dev: Annotated[
        list[Path] | None, typer.Argument(metavar="[DEV…]", help="Dev pairs; without them the memory itself.")
    ] = None,
    methods: Annotated[
        str, typer.Option("--methods", help="What to train, with commas between: adaptive (always), kernel, robust.")
    ] = "adaptive,robust",
    model: ModelOption = None,
    offline: Offline = False,
    engine: EngineOption = None,
    max_k: Annotated[int, typer.Option("--max-k", min=1, help="Neighbours looked at for each token.")] = 32,
    hidden: Annotated[int, typer.Option("--hidden", min=1, help="Hidden size of Meta-k, and of robust.")] = 32,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Training steps at most.")] = 5000,
    temperature: Annotated[
        float | None, typer.Option("--temperature", help="Fix T instead of searching for it.")
    ] = None,
    paper: Annotated[
        bool, typer.Option("--paper", help="The paper's way: raw features, T 10, trained and selected on all of dev.")
    ] = False,
    no_guard: Annotated[
        bool, typer.Option("--no-guard", help="Trust the memory alike in sentences that are far from it.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="Seed of initialisation, order and held-out part.")] = 1,
    format: Format = None,
    threads: Threads = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Train Meta-k and its variants, and tune the baselines of a store."""
    from nearmt.store import Store
    from nearmt.training.schedule import TrainingSettings
    from nearmt.training.train_store import AdaptationSettings

    set_threads(threads)
    opened = Store(store)
    settings = AdaptationSettings(
        max_k=max_k, temperature=temperature, paper=paper, seed=seed, methods=names_of(methods),
        guard=not no_guard,
        training=TrainingSettings(hidden=hidden, steps=steps, seed=seed),
    )  # fmt: skip
    with reporting(quiet) as progress:
        described = opened.train(
            dev or None,
            model=model,
            settings=settings,
            format=format,
            offline=offline,
            engine=engine,
            progress=progress,
        )
    if as_json:
        print_json(described)
    else:
        for name, value in adaptation_rows(described):
            print(f"{name:12} {value}")
    say_doubts(described)


def info(store: StorePath, as_json: AsJson = False) -> None:
    """Show what a store holds, how well its index finds it, and what was learned."""
    from nearmt.store import Store

    described = Store(store).info()
    if as_json:
        print_json(described)
    else:
        print_info(described)
        say_recall(described)


def verify(
    store: StorePath,
    repair: Annotated[
        bool, typer.Option("--repair", help="Keep all that can be read, and compute lost states with the model.")
    ] = False,
    model: ModelOption = None,
    offline: Offline = False,
    threads: Threads = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compare every byte of a store with its checksums. Exit code 0: all is there; 2: it is not."""
    if repair:
        _repair(store, model, offline, threads, as_json, quiet)
        return
    from nearmt.datastore import verify as verify_store

    with reporting(quiet) as progress:
        report = verify_store(store.absolute(), lambda number: progress("verifying", number, None))
    if as_json:
        print_json({"is_sound": report.is_sound, "segments": report.num_segments, "entries": report.num_entries,
                    "sentences": report.num_sentences, "waiting_sentences": report.waiting_sentences,
                    "problems": list(report.problems), "set_aside": [asdict(kept) for kept in report.set_aside],
                    })  # fmt: skip
    else:
        print_report(report, store)
    if not report.is_sound or report.waiting_sentences:
        raise typer.Exit(2)


def _repair(store: Path, model: str | None, offline: bool, threads: int | None, as_json: bool, quiet: bool) -> None:
    from nearmt.building.repair import repair

    set_threads(threads)
    with reporting(quiet) as progress:
        done = repair(store, model=model, offline=offline, progress=progress)
    if as_json:
        print_json(done.as_dict())
    else:
        print_repaired(done, store)
    if not done.is_whole:
        raise typer.Exit(2)
