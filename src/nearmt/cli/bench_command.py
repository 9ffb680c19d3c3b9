"""Measuring from the command line."""

from pathlib import Path
from typing import Annotated

import typer

from nearmt.cli.options import (
    AsJson,
    MemoryOption,
    Probes,
    Quiet,
    Rerank,
    StorePath,
    Threads,
    UriOption,
    bytes_of,
    set_threads,
)
from nearmt.cli.output import print_json, print_table, reporting


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command("bench", epilog="Example: nearmt bench client.store --entries 400000 --batches 1,16")(bench)
    app.command(
        "compare-indexes",
        epilog="Example: nearmt compare-indexes client.store --index Flat --index milvus:HNSW --uri http://localhost:19530",
    )(compare_indexes)


def bench(
    store: StorePath,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="Folder for what it makes and the results: a new one, or an earlier bench's."),
    ] = Path("bench-output"),
    model: Annotated[
        Path | None,
        typer.Option("--model", help="Time this folder's model, not a random one of opus-mt's size; own: STORE's."),
    ] = None,
    entries: Annotated[
        int, typer.Option("--entries", min=1000, help="Entries of the timing store, made of the store's states.")
    ] = 4_000_000,
    batches: Annotated[str, typer.Option("--batches", help="Batch sizes, with commas between.")] = "1,16,32,64",
    k: Annotated[str, typer.Option("--k", help="Numbers of neighbours, with commas between.")] = "8,16,32",
    tables: Annotated[
        str, typer.Option("--tables", help="What to measure, with commas between; also scale and own.")
    ] = "methods,engines,original,parts,building,search,recall,growth,living",
    memory_limit: MemoryOption = None,
    text: Annotated[
        Path | None, typer.Option("--text", help="Sentences, one a line, for the table own: STORE with its own model.")
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Interleaved rounds.")] = 5,
    beam: Annotated[int, typer.Option("--beam", min=1)] = 4,
    index: Annotated[str | None, typer.Option("--index", help="faiss factory string; else by size.")] = None,
    probes: Annotated[int, typer.Option("--probes", min=1, help="Inverted lists probed.")] = 32,
    rerank: Annotated[int, typer.Option("--rerank", min=0, help="Candidates measured on the stored keys.")] = 96,
    keys: Annotated[str, typer.Option("--keys", help="Type of the timing store's keys.")] = "float16",
    threads: Threads = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Measure engines, methods and search side by side, with the states of a STORE."""
    from nearmt.cli.options import names_of, numbers_of
    from nearmt.datastore import replace_file
    from nearmt.experiments.bench import BenchSettings, run_bench
    from nearmt.experiments.bench.report import as_markdown, growth_chart
    from nearmt.experiments.bench.report import tables as made_tables
    from nearmt.experiments.report import can_draw, svg_of

    set_threads(threads)
    settings = BenchSettings(
        entries=entries, batches=numbers_of("--batches", batches), k=numbers_of("--k", k), beam=beam, rounds=rounds,
        tables=names_of(tables), index=index, num_probes=probes, reranked=rerank,
        key_type=keys, memory=bytes_of("--memory", memory_limit), text=text,
    )  # fmt: skip
    with reporting(quiet) as progress:
        content = run_bench(store, out, settings, model, progress)
    replace_file(out / "performance.md", as_markdown(content).encode())
    chart = growth_chart(content)
    if chart is not None and can_draw():
        replace_file(out / "growth.svg", svg_of(chart).encode())
    if as_json:
        print_json(content)
        return
    for heading, table in made_tables(content):
        print_table(heading, table.headings, table.rows)
        print()
    print(f"Written to {out / 'bench.json'} and {out / 'performance.md'}.")


def compare_indexes(
    store: StorePath,
    index: Annotated[
        list[str] | None,
        typer.Option("--index", help="faiss factory string or milvus:TYPE (may be given again); first the default."),
    ] = None,
    uri: UriOption = None,
    queries: Annotated[int, typer.Option("--queries", min=1, help="States to ask with, of held-out sentences.")] = 2000,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Rows of the search that is timed.")] = 128,
    k: Annotated[int, typer.Option("--k", min=1, help="Neighbours that are compared.")] = 32,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Interleaved rounds.")] = 10,
    probes: Probes = 32,
    rerank: Rerank = 96,
    threads: Threads = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compare indexes of a STORE: what each finds of the same queries, and how long one search takes.

    The store stays as it is. The first row is the index that its size would get.
    """
    from nearmt.errors import SettingError
    from nearmt.experiments.bench.indexes import as_table
    from nearmt.experiments.bench.indexes import compare_indexes as compare
    from nearmt.retrieval.index.milvus import is_milvus
    from nearmt.retrieval.indexing import IndexSettings
    from nearmt.store import Store

    set_threads(threads)
    asked = [None, *dict.fromkeys(index or [])]
    if uri is not None and not any(map(is_milvus, asked)):
        raise SettingError("--uri says where Milvus is: it goes with --index milvus")
    settings = [IndexSettings(one, probes, rerank, k, uri=uri if is_milvus(one) else None) for one in asked]
    snapshot = Store(store).snapshot()
    with reporting(quiet) as progress:
        found = compare(snapshot, settings, num_queries=queries, rows=rows, k=k, rounds=rounds, progress=progress)
    if as_json:
        print_json(found)
        return
    table = as_table(found)
    print_table(f"{len(snapshot):,} entries, {found[0]['recall']['num_queries']:,} queries", table.headings, table.rows)
