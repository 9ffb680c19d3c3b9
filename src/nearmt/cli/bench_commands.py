"""`nearmt bench`: speed of decoding and search, of indexes, and of the server."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nearmt.cli.bench_server import measure_load
from nearmt.cli.options import (
    Device,
    Dtype,
    FaissProbes,
    FaissRerank,
    IndexFactory,
    IndexMemory,
    MilvusUri,
    Probes,
    Rerank,
    RunOptions,
    ServerConfig,
    StoreModel,
    StorePath,
    index_option,
    measuring_option,
    model_option,
    output_option,
)
from nearmt.cli.output import number_of, print_json, print_table, reporting
from nearmt.cli.values import bytes_of, names_of, numbers_of
from nearmt.errors import SettingError

if TYPE_CHECKING:
    from nearmt.experiments.bench import BenchSettings


@dataclass(frozen=True)
class _ModelOptions:
    model: Annotated[
        Path | None,
        model_option(
            "--model",
            help="Folder of the model to time; for the tables own, job and sizes, the store's model. Default: a "
            "random model of the size of opus-mt.",
            show_default=False,
        ),
    ] = None
    engine: Annotated[str, model_option("--engine", help="torch, int8, or auto (int8 where it is faster).")] = "auto"
    device: Device = "cpu"
    dtype: Dtype = "float32"


@dataclass(frozen=True)
class _IndexOptions:
    entries: Annotated[int, index_option("--entries", min=1000, help="Entries of the timing store, made of STORE.")] = (
        4_000_000
    )
    index: IndexFactory = None
    num_probes: FaissProbes = 32
    reranked: FaissRerank = 96
    memory: IndexMemory = None
    key_type: Annotated[
        str, index_option("--keys", help="Type of the timing store's keys: float16, float32 or int8.")
    ] = "float16"


@dataclass(frozen=True)
class _MeasuringOptions:
    tables: Annotated[
        str,
        measuring_option("--tables", help="What to measure, comma-separated; also: scale, own, job, sizes."),
    ] = "methods,engines,original,parts,building,search,recall,growth,living"
    text: Annotated[
        Path | None,
        measuring_option("--text", help="File with one sentence per line, for own, job and sizes."),
    ] = None
    batches: Annotated[str, measuring_option("--batches", help="Batch sizes, comma-separated.")] = "1,16,32,64"
    k: Annotated[str, measuring_option("--k", help="Numbers of neighbours, comma-separated.")] = "8,16,32"
    beam: Annotated[int, measuring_option("--beam", min=1, help="Beam width.")] = 4
    rounds: Annotated[int, measuring_option("--rounds", min=1, help="Interleaved rounds.")] = 5
    busy: Annotated[
        int,
        measuring_option("--busy", min=0, help="Measure beside this number of processes that never stop computing."),
    ] = 0


def speed(
    store: StorePath,
    *,
    model: _ModelOptions,
    indexing: _IndexOptions,
    measuring: _MeasuringOptions,
    out: Annotated[
        Path,
        output_option("--out", "-o", help="Folder for stores and results: a new one, or that of an earlier run."),
    ] = Path("bench-output"),
    run: RunOptions,
) -> None:
    """Time engines, methods, search and building side by side, with the states of STORE."""
    from nearmt.datastore import replace_file
    from nearmt.experiments.bench import run_bench
    from nearmt.experiments.bench.report import as_markdown, growth_chart, tables
    from nearmt.experiments.report import can_draw, svg_of

    run.set_threads()
    settings = _speed_settings(model, indexing, measuring)
    with reporting(run.quiet) as progress:
        content = run_bench(store, out, settings, model.model, progress)
    replace_file(out / "performance.md", as_markdown(content).encode())
    chart = growth_chart(content)
    if chart is not None and can_draw():
        replace_file(out / "growth.svg", svg_of(chart).encode())
    if run.as_json:
        print_json(content)
        return
    for heading, table in tables(content):
        print_table(heading, table.headings, table.rows)
        print()
    print(f"Written to {out / 'bench.json'} and {out / 'performance.md'}.")


def _speed_settings(model: _ModelOptions, indexing: _IndexOptions, measuring: _MeasuringOptions) -> "BenchSettings":
    from nearmt.experiments.bench import BenchSettings

    return BenchSettings(
        entries=indexing.entries,
        batches=numbers_of("--batches", measuring.batches),
        k=numbers_of("--k", measuring.k),
        beam=measuring.beam,
        rounds=measuring.rounds,
        tables=names_of(measuring.tables),
        index=indexing.index,
        num_probes=indexing.num_probes,
        reranked=indexing.reranked,
        memory=bytes_of("--memory", indexing.memory),
        key_type=indexing.key_type,
        engine=model.engine,
        device=model.device,
        dtype=model.dtype,
        text=measuring.text,
        busy=measuring.busy,
    )


@dataclass(frozen=True)
class _ComparedOptions:
    index: Annotated[
        list[str] | None,
        index_option("--index", help="faiss factory string or milvus:TYPE (repeatable), besides the default index."),
    ] = None
    uri: MilvusUri = None
    num_probes: Probes = None
    reranked: Rerank = None


@dataclass(frozen=True)
class _ComparisonOptions:
    queries: Annotated[
        int, measuring_option("--queries", min=1, help="Queries to measure recall with: states of held-out sentences.")
    ] = 2000
    rows: Annotated[int, measuring_option("--rows", min=1, help="Rows of each timed search.")] = 128
    k: Annotated[int, measuring_option("--k", min=1, help="Neighbours to search for.")] = 32
    rounds: Annotated[int, measuring_option("--rounds", min=1, help="Interleaved rounds.")] = 10


def indexes(store: StorePath, compared: _ComparedOptions, measuring: _ComparisonOptions, run: RunOptions) -> None:
    """Compare recall and search time of indexes on STORE.

    The store is not changed. The first row is the default index for its size.
    """
    from nearmt.experiments.bench.indexes import as_table, compare_indexes
    from nearmt.retrieval.index.milvus import is_milvus
    from nearmt.retrieval.indexing import IndexSettings
    from nearmt.store import Store

    run.set_threads()
    factories = [None, *dict.fromkeys(compared.index or [])]
    if compared.uri is not None and not any(map(is_milvus, factories)):
        raise SettingError("--uri is the address of Milvus: it goes with --index milvus")
    settings = [
        IndexSettings(
            factory,
            compared.num_probes,
            compared.reranked,
            measuring.k,
            uri=compared.uri if is_milvus(factory) else None,
            retrieval="tokens",
        )
        for factory in factories
    ]
    snapshot = Store(store).snapshot()
    with reporting(run.quiet) as progress:
        found = compare_indexes(
            snapshot,
            settings,
            num_queries=measuring.queries,
            rows=measuring.rows,
            k=measuring.k,
            rounds=measuring.rounds,
            progress=progress,
        )
    if run.as_json:
        print_json(found)
        return
    table = as_table(found)
    entries = number_of(len(snapshot), "entry", "entries")
    queries = number_of(found[0]["recall"]["num_queries"], "query", "queries")
    print_table(f"{entries}, {queries}", table.headings, table.rows)


@dataclass(frozen=True)
class _LoadOptions:
    clients: Annotated[int, measuring_option("--clients", min=1, help="Number of concurrent clients.")] = 64
    seconds: Annotated[float, measuring_option("--seconds", min=1, help="Duration in seconds.")] = 120.0
    requests: Annotated[
        int | None, measuring_option("--requests", min=1, help="Maximum number of requests. Default: no limit.")
    ] = None


def server(
    store: StorePath,
    text: Annotated[Path, typer.Argument(metavar="TEXT", help="File with one sentence per line.")],
    *,
    load: _LoadOptions,
    config: ServerConfig = None,
    model: StoreModel = None,
    run: RunOptions,
) -> None:
    """Start a server on STORE, put it under load, and compare its answers and speed with translation without it."""
    from nearmt.corpus import read_lines
    from nearmt.experiments.bench.load import LoadSettings

    run.set_threads()
    texts = [line for line in dict.fromkeys(read_lines(text)) if line.strip()]
    if not texts:
        raise SettingError(f"{text} has no text")
    settings = LoadSettings(load.clients, load.seconds, load.requests)
    serving = {"model": model, "config": config, "threads": run.threads}
    content = measure_load(store, texts, settings, serving, run.quiet)
    if run.as_json:
        print_json(content)
    else:
        rows = [[name.replace("_", " "), str(value)] for name, value in content.items() if value is not None]
        print_table("Load on a server", ["measure", "value"], rows)
    if content["wrong_answers"] or content["errors"]:
        raise typer.Exit(1)
