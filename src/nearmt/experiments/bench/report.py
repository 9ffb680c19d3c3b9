"""Formats benchmark results as tables, Markdown and a chart."""

from collections.abc import Callable, Mapping
from typing import Any

from nearmt.datastore import SENTENCES, TOKENS
from nearmt.experiments.report import LineChart, Table

_TITLES = {
    "methods": "Methods, milliseconds per sentence (× base)",
    "engines": "Engines, milliseconds per sentence (× ours)",
    "original": "The original code's index and mixture on our engine, milliseconds per sentence (× base)",
    "parts": "Parts of adaptive decoding, milliseconds per batch",
    "building": "Building: entries force-decoded per second",
    "search": "One search, milliseconds",
    "recall": "Recall for states that are not in the store",
    "growth": "One search of 64 rows as the store grows",
    "scale": "A large store",
    "own": "The store with its own model on real text, milliseconds per sentence (× base per token)",
    "job": "A whole file with the store's own model, milliseconds per segment (× base)",
    "sizes": "Retrieval as the store grows",
    "living": "One search of a store with 10 % recent additions and 10 % removed, milliseconds",
}


def tables(content: Mapping[str, Any]) -> list[tuple[str, Table]]:
    """Return a heading and a table for each part of the results."""
    setup = ("Setup", _about(content["about"]))
    return [setup, *((_TITLES[name], _TABLES[name](results)) for name, results in content["tables"].items())]


def growth_chart(content: Mapping[str, Any]) -> LineChart | None:
    """Return milliseconds per search by number of entries, if they were measured."""
    results = content["tables"].get("growth")
    if not results:
        return None
    ticks = [f"{int(size):,}" for size in results]
    return LineChart(ticks, {"search": [1000 * t["median"] for t in results.values()]}, "entries", "milliseconds")


def as_markdown(content: Mapping[str, Any]) -> str:
    """Return the tables as a Markdown document."""
    lines = [
        "# Performance",
        "",
        "Made by `nearmt bench speed`: medians of interleaved rounds and of their ratios. Compare within a table only.",
    ]
    for heading, table in tables(content):
        lines += ["", f"## {heading}", "", table.as_markdown()]
    return "\n".join(lines) + "\n"


def _about(about: Mapping[str, Any]) -> Table:
    store, settings, model = about["store"], about["settings"], about["model"]
    recall = store.get("recall") or {}
    lengths = f"{settings['source_length']} → {settings['output_length']} tokens"
    index = f"retrieval by {store['retrieval']}"
    if store["index"] is not None:
        index += f", {store['index']}, {store['num_probes']} lists probed, {store['reranked']} candidates re-ranked"
    on_disk, in_index = store["disk_bytes_per_entry"], store["index_bytes_per_entry"]
    rows = [
        ("model", f"width {model['width']}, {model['vocabulary']:,} tokens, engine {about['engine']}"),
        ("decoding", f"beam {settings['beam']}, {lengths}, {about['threads']} threads"),
        ("processor", f"{about['cpus']} CPUs, {settings['busy']} other busy processes"),
        ("store", f"{store['entries']:,} entries, {store['keys']}, {index}"),
        (
            "bytes per entry",
            f"{on_disk:.0f} on disk, {in_index:.0f} of them in indexes",
        ),
    ]
    if recall:
        rows.append(("recalled mass", f"{recall['mass']:.3f} ({recall['recall']:.3f} of the {recall['k']} nearest)"))
    rows.append(("rounds", f"{settings['rounds']}, interleaved; python {about['python']}, torch {about['torch']}"))
    return Table(("", ""), tuple(rows))


def _by_batch(results: Mapping[str, Any], cell: Callable[[Mapping[str, Any], str, str], str]) -> Table:
    """Return a table with a row per system or part and a column per batch size."""
    names = dict.fromkeys(name for result in results.values() for name in result)
    rows = [(name, *(cell(result, name, batch) for batch, result in results.items())) for name in names]
    return Table(("", *(f"batch {batch}" for batch in results)), tuple(rows))


def _time_text(seconds: float, ratio: float, spread: float) -> str:
    return f"{1000 * seconds:.1f} (×{ratio:.2f}, ±{spread / 2:.0%})"


def _systems(results: Mapping[str, Any]) -> Table:
    def cell(result: Mapping[str, Any], name: str, batch: str) -> str:
        timing = result[name]
        return _time_text(timing["median"] / int(batch), timing["ratio"], timing["spread"])

    return _by_batch(results, cell)


def _own(results: Mapping[str, Any]) -> Table:
    def cell(result: Mapping[str, Any], name: str, batch: str) -> str:
        timing, base = result[name], next(iter(result.values()))
        per_token = base["tokens"] / timing["tokens"]
        text = _time_text(timing["median"] / timing["sentences"], timing["ratio"] * per_token, timing["spread"])
        return f"{text}, processor ×{timing['processor_ratio'] * per_token:.2f}"

    return _by_batch(results, cell)


def _job(results: Mapping[str, Any]) -> Table:
    segments = results["segments"]
    about = f"{segments:,} segments, {results['exact_matches']:,} of them in the memory"
    rows = [
        (
            name,
            _time_text(timing["median"] / segments, timing["ratio"], timing["spread"]),
            f"×{timing['processor_ratio']:.2f}",
        )
        for name, timing in results["systems"].items()
    ]
    return Table((about, "time", "processor time"), tuple(rows))


def _parts(results: Mapping[str, Any]) -> Table:
    def cell(result: Mapping[str, Any], name: str, batch: str) -> str:
        seconds = result.get(name, 0.0)
        return f"{1000 * seconds:.1f} ({seconds / sum(result.values()):.0%})"

    return _by_batch(results, cell)


def _building(results: Mapping[str, Any]) -> Table:
    rows = [
        (name, f"{result['entries'] / result['median']:,.0f} (±{result['spread'] / 2:.0%})")
        for name, result in results.items()
    ]
    return Table(("engine", "entries per second"), tuple(rows))


def _search(results: Mapping[str, Any]) -> Table:
    sizes = list(next(iter(results.values())))
    rows = [(f"{count} rows", *(f"{1000 * times[k]['median']:.2f}" for k in sizes)) for count, times in results.items()]
    return Table(("", *sizes), tuple(rows))


def _living(results: Mapping[str, Any]) -> Table:
    rows = []
    for count, times in results.items():
        changed, compacted = times["as it stands"]["median"], times["compacted"]["median"]
        ratio = 1 / times["compacted"]["ratio"]
        rows.append((f"{count} rows", f"{1000 * changed:.2f}", f"{1000 * compacted:.2f}", f"×{ratio:.2f}"))
    return Table(("", "changed", "compacted", ""), tuple(rows))


def _scale(results: Mapping[str, Any]) -> Table:
    held = results["held_bytes"]
    rows = [
        (f"{step}, seconds (peak additional memory)", f"{cost['seconds']:,.0f} ({cost['peak_bytes'] / 1e9:.2f} GB)")
        for step, cost in results["made"].items()
    ]
    rows.append(("memory held for searching", f"{held / 1e9:.2f} GB, {held / results['entries']:.0f} B per entry"))
    if results["recall"]:
        rows.append(("recalled mass", f"{results['recall']['mass']:.3f}"))
    for size, timing in results["search"].items():
        name = f"one search of {results['rows']} rows, {int(size):,} entries"
        rows.append((name, f"{1000 * timing['median']:.1f} ms (×{timing['ratio']:.2f})"))
    return Table(("", ""), tuple(rows))


def _sizes(results: Mapping[str, Any]) -> Table:
    stores, translation = results["stores"], results["translation"]

    def made(step: str) -> Callable[[Mapping[str, Any]], str]:
        def cell(found: Mapping[str, Any]) -> str:
            cost = found["made"].get(step)
            return "" if cost is None else f"{cost['seconds']:,.0f} ({cost['peak_bytes'] / 1e9:.2f} GB)"

        return cell

    def opening(state: str) -> Callable[[Mapping[str, Any]], str]:
        return lambda found: "{seconds:.2f} ({processor:.2f})".format(**found[state]["opening"])

    def memory(state: str) -> Callable[[Mapping[str, Any]], str]:
        return lambda found: f"{found[state]['anonymous_bytes'] / 1e6:.0f}"

    def quantiles(state: str, part: str) -> Callable[[Mapping[str, Any]], str]:
        return lambda found: " / ".join(f"{1000 * seconds:.2f}" for seconds in found[state][part].values())

    cells: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "sentences": lambda found: f"{found['sentences']:,}",
        "bytes per entry on disk": lambda found: f"{found['store']['disk_bytes_per_entry']:.0f}",
        "of these in the index": lambda found: f"{found['store']['index_bytes_per_entry']:.1f}",
        "storing, seconds (peak additional memory)": made("storing"),
        "indexing, seconds (peak additional memory)": made("indexing"),
        "opening, seconds (processor time)": opening("warm"),
        "opening from disk, seconds (processor time)": opening("cold"),
        "additional anonymous memory, MB": memory("warm"),
        "mapped files in memory, MB": lambda found: f"{found['warm']['mapped_bytes'] / 1e6:.0f}",
        "index of tokens: opening, seconds (processor time)": opening("tokens"),
        "index of tokens: additional anonymous memory, MB": memory("tokens"),
        "choosing sentences for a source, ms of processor time (median / 95 %)": quantiles("warm", "choosing"),
        "copying their entries, ms of processor time": quantiles("warm", "copying"),
        "both, ms": quantiles("warm", "both"),
        "both, from disk, ms": quantiles("cold", "both"),
        "reads from disk for each source": lambda found: f"{found['cold']['reads']:.0f}",
    }
    rows = [(name, *(cell(found) for found in stores.values())) for name, cell in cells.items()]
    for batch, timings in translation.items():
        base = timings["base"]
        alone = f"{1000 * base['median'] / base['sentences']:.1f} ±{base['spread'] / 2:.0%}"
        for retrieval in (SENTENCES, TOKENS):
            grown = [timings[f"{retrieval} {size}"] for size in stores]
            times = (_time_text(one["median"] / one["sentences"], one["ratio"], one["spread"]) for one in grown)
            rows.append((f"{retrieval}: translation, batch {batch}, ms per sentence (base: {alone})", *times))
            for name, ratio in (("time", "of_smallest"), ("processor time", "processor_of_smallest")):
                rows.append((f"the same, {name} × the smallest", *(f"×{one[ratio]:.3f}" for one in grown)))
            rows.append(("the same, processor time × base", *(f"×{one['processor_ratio']:.3f}" for one in grown)))
    return Table(("", *(f"{int(size):,} entries" for size in stores)), tuple(rows))


def _recall(result: Mapping[str, Any]) -> Table:
    headings = ("queries", f"recall of the {result['k']} nearest", "recalled mass", "T")
    row = (
        f"{result['num_queries']:,}",
        f"{result['recall']:.3f}",
        f"{result['mass']:.3f}",
        f"{result['temperature']:.4g}",
    )
    return Table(headings, (row,))


def _growth(results: Mapping[str, Any]) -> Table:
    rows = [(f"{int(size):,}", f"{1000 * t['median']:.2f}", f"×{t['ratio']:.2f}") for size, t in results.items()]
    return Table(("entries", "milliseconds", ""), tuple(rows))


_TABLES: dict[str, Callable[[Mapping[str, Any]], Table]] = {
    "methods": _systems,
    "engines": _systems,
    "original": _systems,
    "parts": _parts,
    "building": _building,
    "search": _search,
    "recall": _recall,
    "growth": _growth,
    "living": _living,
    "sizes": _sizes,
    "scale": _scale,
    "own": _own,
    "job": _job,
}
