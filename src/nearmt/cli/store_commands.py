"""Commands that make, train, describe and check a store."""

from pathlib import Path
from typing import Annotated, Any

import typer

from nearmt.cli.options import (
    AsJson,
    EngineOption,
    Format,
    ModelOption,
    Offline,
    Quiet,
    StorePath,
    Threads,
    names_of,
    set_threads,
)
from nearmt.cli.output import print_json, reporting, say


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
        str, typer.Option("--engine", help="torch, int8, or auto: int8 where it is known to be faster.")
    ] = "auto",
    dev: Annotated[
        list[Path] | None,
        typer.Option("--dev", help="Dev pairs to train on (may be given twice); else the memory itself."),
    ] = None,
    no_train: Annotated[bool, typer.Option("--no-train", help="Do not train Meta-k now.")] = False,
    max_k: Annotated[int, typer.Option("--max-k", min=1, help="Neighbours looked at for each token.")] = 32,
    index: Annotated[str | None, typer.Option("--index", help="faiss factory string; else chosen by size.")] = None,
    probes: Annotated[int, typer.Option("--probes", min=1, help="Inverted lists searched for each query.")] = 32,
    rerank: Annotated[
        int, typer.Option("--rerank", min=0, help="Candidates measured exactly; 0 keeps the index's own distances.")
    ] = 128,
    keys: Annotated[str, typer.Option("--keys", help="Type of the stored keys: float16 or float32.")] = "float16",
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
    from nearmt import memory
    from nearmt.adaptation import AdaptationSettings
    from nearmt.builder import BuildSettings
    from nearmt.seq2seq import Seq2Seq

    set_threads(threads)
    settings = BuildSettings(
        key_type=keys, index=index, num_probes=probes, reranked=rerank, max_k=max_k, keep_identical=keep_identical
    )
    memory.check_place(out, resume=resume, force=force)
    loaded = Seq2Seq.load(
        model, revision=revision, source_lang=source, target_lang=target, source_prefix=source_prefix, offline=offline,
        engine=engine,
    )  # fmt: skip
    try:
        with reporting(quiet) as progress:
            store = memory.build(
                inputs, model=loaded, out=out, dev=dev or None, train=not no_train, settings=settings,
                adaptation=AdaptationSettings(max_k=max_k), format=format, resume=resume, force=force,
                progress=progress,
            )  # fmt: skip
    except KeyboardInterrupt:
        say("interrupted: the same command with --resume goes on from here")
        raise typer.Exit(130) from None
    described = store.info()
    if as_json:
        print_json(described)
        return
    _print_info(described)
    if described["adaptation"] is not None:
        _say_doubts(described["adaptation"])
    elif not no_train:
        say("The memory is too small to learn from itself: train with nearmt train and a dev set, or use --method.")
    _say_recall(described)


def train(
    store: StorePath,
    dev: Annotated[
        list[Path] | None, typer.Argument(metavar="[DEV…]", help="Dev pairs; without them the memory itself.")
    ] = None,
    gate: Annotated[
        bool, typer.Option("--gate", help="Also learn where searching can be left out (see translate --gate).")
    ] = False,
    methods: Annotated[
        str, typer.Option("--methods", help="What to train, with commas between: adaptive (always), kernel, robust.")
    ] = "adaptive",
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
    """Train Meta-k, and other networks if asked, and tune the baselines of a store."""
    from nearmt.adaptation import AdaptationSettings
    from nearmt.memory import Store
    from nearmt.metak import TrainingSettings

    set_threads(threads)
    opened = Store(store)
    settings = AdaptationSettings(
        max_k=max_k, temperature=temperature, paper=paper, seed=seed, methods=names_of(methods), gate=gate,
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
        for name, value in _adaptation_rows(described):
            print(f"{name:12} {value}")
    _say_doubts(described)


def info(store: StorePath, as_json: AsJson = False) -> None:
    """Show what a store holds, how well its index finds it, and what was learned."""
    from nearmt.memory import Store

    described = Store(store).info()
    if as_json:
        print_json(described)
    else:
        _print_info(described)
        _say_recall(described)


def verify(store: StorePath, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Compare every byte of a store with its checksums."""
    from nearmt.store import Manifest
    from nearmt.store import verify as verify_store

    total = len(Manifest.load(store).segments)
    with reporting(quiet) as progress:
        report = verify_store(store, lambda number: progress("verifying", number, total))
    if as_json:
        print_json({"is_sound": report.is_sound, "segments": report.num_segments, "entries": report.num_entries,
                    "sentences": report.num_sentences, "problems": list(report.problems)})  # fmt: skip
    elif report.is_sound:
        print(f"{store} is sound: {report.num_sentences} sentences, {report.num_entries} entries")
    else:
        for problem in report.problems:
            say(f"nearmt: {store}: {problem}")
    if not report.is_sound:
        raise typer.Exit(2)


def _print_info(described: dict[str, Any]) -> None:
    index, bytes_on_disk, model = described["index"] or {}, described["bytes"], described["model"]
    recall = index.get("recall")
    rows = [
        ("store", described["store"]),
        ("languages", f"{described['languages']['source'] or '?'} → {described['languages']['target'] or '?'}"),
        ("model", f"{model['name']} ({model['architecture']}, width {model['width']})"),
        ("memory", f"{described['sentences']:,} sentences, {described['entries']:,} entries"),
        ("on disk", f"{bytes_on_disk['data'] / 1e6:,.1f} MB data, {bytes_on_disk['index'] / 1e6:,.1f} MB index"),
        ("dropped", ", ".join(f"{n:,} {reason}" for reason, n in described["dropped"].items()) or "nothing"),
        ("index", f"{index.get('factory', 'none')}" + ("" if index.get("factory") in (None, "Flat") else
                  f", {index['num_probes']} lists probed, {index['reranked']} re-ranked")),
    ]  # fmt: skip
    if recall:
        rows.append(("recall", _recall_text(recall)))
    rows += _adaptation_rows(described["adaptation"])
    for name, value in rows:
        print(f"{name:12} {value}")


def _recall_text(recall: dict[str, Any]) -> str:
    if not recall["num_queries"]:
        return "not measured: the memory has no two different sentences"
    return f"{recall['recall']:.1%} of the {recall['k']} nearest, {recall['mass']:.1%} of their weight"


def _adaptation_rows(learned: dict[str, Any] | None) -> list[tuple[str, str]]:
    if learned is None:
        return [("meta-k", "not trained: run nearmt train")]
    metak, vanilla, held = learned["metak"], learned["vanilla"], learned["held_out"]
    is_seen, relatives = learned["is_selected_on_training_part"], learned.get("relatives", {})
    losses = ", ".join(f"{name} {held[f'{name}_loss']:.3f}" for name in ("base", "vanilla", "adaptive", *relatives))
    return [
        ("meta-k", f"K {metak['max_k']}, T {metak['temperature']:g}, trained on {learned['trained_on']['origin']}"),
        ("guard", f"strength {metak['guard']['strength']:g}" if metak.get("guard") else "none"),
        *((name, f"K {of['max_k']}, best after {of['steps']} steps") for name, of in relatives.items()),
        ("vanilla", f"k {vanilla['k']}, T {vanilla['temperature']:g}, share {vanilla['knn_share']:g}"),
        ("all of dev" if is_seen else "held out",
         f"loss a token: {losses}" + ("" if is_seen else f" ({held['sentences']} sentences)")),
        ("dev recall", _recall_text(learned["recall"])),
        *([("gate", _gate_text(learned["gate"]))] if learned.get("gate") else []),
    ]  # fmt: skip


def _gate_text(gate: dict[str, Any]) -> str:
    scores = f"held-out BLEU {gate['bleu']:.2f}, without it {gate['bleu_without_gate']:.2f}"
    return f"leaves out {gate['skipped_share']:.0%} of the searches; {scores}"


_FEW_SENTENCES = 20


def _say_doubts(learned: dict[str, Any]) -> None:
    """What a user should know before trusting what was learned."""
    held = learned["held_out"]
    dropped = learned["trained_on"].get("dropped")
    if dropped:
        say(f"Left out of the dev set: {', '.join(f'{n} {why}' for why, n in dropped.items())}.")
    if held["adaptive_loss"] >= held["base_loss"]:
        say("Warning: on the held-out sentences the memory did not help: Meta-k has learned to ignore it.")
    if held["sentences"] < _FEW_SENTENCES:
        say(f"Warning: only {held['sentences']} held-out sentences: train with a larger dev set (some hundred pairs).")


def _say_recall(described: dict[str, Any]) -> None:
    from nearmt.recall import LOW_MASS, LOW_RECALL

    for part in (described["index"], described["adaptation"]):
        recall = (part or {}).get("recall")
        if recall and recall["num_queries"] and (recall["mass"] < LOW_MASS or recall["recall"] < LOW_RECALL):
            found = f"{recall['recall']:.0%} of the neighbours and {recall['mass']:.0%} of their weight"
            say(f"The index finds only {found}: build with more --probes or --rerank, or with another --index.")
            return
