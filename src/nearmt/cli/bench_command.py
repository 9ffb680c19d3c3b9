"""Measuring from the command line."""

from pathlib import Path
from typing import Annotated

import typer

from nearmt.cli.options import AsJson, Quiet, StorePath, Threads, bytes_of, set_threads
from nearmt.cli.output import print_json, print_table, reporting


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command("bench", epilog="Example: nearmt bench client.store --entries 400000 --batches 1,16")(bench)


def bench(
    store: StorePath,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for the model and store that are made for it, and the results.")
    ] = Path("bench-output"),
    model: Annotated[
        Path | None, typer.Option("--model", help="Time this folder's model, not a random one of opus-mt's size.")
    ] = None,
    entries: Annotated[
        int, typer.Option("--entries", min=1000, help="Entries of the timing store, made of the store's states.")
    ] = 4_000_000,
    batches: Annotated[str, typer.Option("--batches", help="Batch sizes, with commas between.")] = "1,16,32,64",
    k: Annotated[str, typer.Option("--k", help="Numbers of neighbours, with commas between.")] = "8,16,32",
    tables: Annotated[
        str, typer.Option("--tables", help="What to measure, with commas between; also scale and own.")
    ] = "methods,engines,original,parts,building,search,growth,living",
    memory_limit: Annotated[
        str | None,
        typer.Option("--memory", help="Memory that the index may take, such as 4G; a larger one stays on disk."),
    ] = None,
    text: Annotated[
        Path | None, typer.Option("--text", help="Sentences, one a line, for the table own: STORE with its own model.")
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Interleaved rounds.")] = 5,
    beam: Annotated[int, typer.Option("--beam", min=1)] = 4,
    index: Annotated[str | None, typer.Option("--index", help="faiss factory string; else by size.")] = None,
    probes: Annotated[int, typer.Option("--probes", min=1, help="Inverted lists probed.")] = 24,
    rerank: Annotated[int, typer.Option("--rerank", min=0, help="Candidates measured on the stored keys.")] = 96,
    keys: Annotated[str, typer.Option("--keys", help="Type of the timing store's keys.")] = "float16",
    threads: Threads = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Measure engines, methods and search side by side, with the states of a STORE."""
    from nearmt.bench import BenchSettings, run_bench
    from nearmt.bench.report import as_markdown, growth_chart
    from nearmt.bench.report import tables as made_tables
    from nearmt.cli.options import names_of, numbers_of
    from nearmt.report import standalone

    set_threads(threads)
    settings = BenchSettings(
        entries=entries, batches=numbers_of("--batches", batches), k=numbers_of("--k", k), beam=beam, rounds=rounds,
        tables=names_of(tables), index=index, num_probes=probes, reranked=rerank,
        key_type=keys, memory=bytes_of("--memory", memory_limit), text=text,
    )  # fmt: skip
    with reporting(quiet) as progress:
        content = run_bench(store, out, settings, model, progress)
    (out / "performance.md").write_text(as_markdown(content), encoding="utf-8")
    chart = growth_chart(content)
    if chart is not None:
        (out / "growth.svg").write_text(standalone(chart), encoding="utf-8")
    if as_json:
        print_json(content)
        return
    for heading, table in made_tables(content):
        print_table(heading, table.headings, table.rows)
        print()
    print(f"Written to {out / 'bench.json'} and {out / 'performance.md'}.")
