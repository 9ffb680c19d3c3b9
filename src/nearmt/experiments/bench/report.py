"""The measured numbers as tables for people."""

from collections.abc import Callable, Mapping
from typing import Any

from nearmt.experiments.report import LineChart, Table

_TITLES = {
    "methods": "Methods, milliseconds a sentence (× base)",
    "engines": "Engines, milliseconds a sentence (× ours)",
    "original": "The original's way on our engine, milliseconds a sentence (× base)",
    "parts": "Where the time of adaptive goes, milliseconds a batch",
    "building": "Building: entries force-decoded a second",
    "search": "One search, milliseconds",
    "recall": "What a search finds of the nearest of states that are not stored",
    "growth": "One search of 64 rows as the memory grows",
    "scale": "A large memory",
    "own": "The store with its own model on real text, milliseconds a sentence (× base a token)",
    "living": "One search of a memory with 10 % recent additions and 10 % removed, milliseconds",
}


def tables(content: Mapping[str, Any]) -> list[tuple[str, Table]]:
    """A heading and a table for everything that was measured."""
    made = [("What was measured with", _about(content["about"]))]
    for name, found in content["tables"].items():
        made.append((_TITLES[name], _MADE_BY[name](found)))
    return made


def growth_chart(content: Mapping[str, Any]) -> LineChart | None:
    """Milliseconds of a search by the number of entries."""
    found = content["tables"].get("growth")
    if not found:
        return None
    ticks = [f"{int(size):,}" for size in found]
    return LineChart(ticks, {"search": [1000 * t["median"] for t in found.values()]}, "entries", "milliseconds")


def as_markdown(content: Mapping[str, Any]) -> str:
    """A document made of the tables."""
    lines = [
        "# Performance",
        "",
        "Made by `nearmt bench`; medians of interleaved rounds, and of their ratios. Compare within a table only.",
    ]
    for heading, table in tables(content):
        lines += ["", f"## {heading}", "", table.as_markdown()]
    return "\n".join(lines) + "\n"


def _about(about: Mapping[str, Any]) -> Table:
    store, settings, model = about["store"], about["settings"], about["model"]
    recall = store.get("recall") or {}
    rows = [
        ("model", f"width {model['width']}, {model['vocabulary']:,} tokens, engine {about['engine']}"),
        ("decoding", f"beam {settings['beam']}, {settings['source_length']} → {settings['output_length']} tokens, "
                     f"{about['threads']} threads"),
        ("store", f"{store['entries']:,} entries, {settings['key_type']} keys, {store['index']}, "
                  f"{store['num_probes']} lists probed, {store['reranked']} measured"),
        ("bytes an entry", f"{store['disk_bytes_per_entry']:.0f} on disk, {store['index_bytes_per_entry']:.0f} of them "
                           "index, which is held in memory too"),
    ]  # fmt: skip
    if recall:
        rows.append(("recalled mass", f"{recall['mass']:.3f} ({recall['recall']:.3f} of the {recall['k']} nearest)"))
    rows.append(("rounds", f"{settings['rounds']}, interleaved; python {about['python']}, torch {about['torch']}"))
    return Table(("", ""), tuple(rows))


def _by_batch(found: Mapping[str, Any]) -> Table:
    batches = list(found)
    rows = []
    for name in found[batches[0]]:
        cells = []
        for batch in batches:
            times = found[batch]
            ms = 1000 * times[name]["median"] / int(batch)
            cells.append(f"{ms:.1f} (×{times[name]['ratio']:.2f}, ±{times[name]['spread'] / 2:.0%})")
        rows.append((name, *cells))
    return Table(("", *(f"batch {batch}" for batch in batches)), tuple(rows))


def _parts(found: Mapping[str, Any]) -> Table:
    batches = list(found)
    names = list(dict.fromkeys(name for parts in found.values() for name in parts))
    rows = []
    for name in names:
        cells = []
        for batch in batches:
            seconds, total = found[batch].get(name, 0.0), sum(found[batch].values())
            cells.append(f"{1000 * seconds:.1f} ({seconds / total:.0%})")
        rows.append((name, *cells))
    return Table(("", *(f"batch {batch}" for batch in batches)), tuple(rows))


def _building(found: Mapping[str, Any]) -> Table:
    rows = [
        (name, f"{told['entries'] / told['median']:,.0f} (±{told['spread'] / 2:.0%})") for name, told in found.items()
    ]
    return Table(("engine", "entries a second"), tuple(rows))


def _search(found: Mapping[str, Any]) -> Table:
    sizes = list(next(iter(found.values())))
    rows = [(f"{count} rows", *(f"{1000 * times[k]['median']:.2f}" for k in sizes)) for count, times in found.items()]
    return Table(("", *sizes), tuple(rows))


def _living(found: Mapping[str, Any]) -> Table:
    rows = []
    for count, times in found.items():
        changed, compacted = times["as it stands"]["median"], times["compacted"]["median"]
        ratio = 1 / times["compacted"]["ratio"]
        rows.append((f"{count} rows", f"{1000 * changed:.2f}", f"{1000 * compacted:.2f}", f"×{ratio:.2f}"))
    return Table(("", "as it stands", "compacted", ""), tuple(rows))


def _scale(found: Mapping[str, Any]) -> Table:
    entries = found["entries"]
    rows = [
        (f"{step}, seconds (most memory on top)", f"{told['seconds']:,.0f} ({told['peak_bytes'] / 1e9:.2f} GB)")
        for step, told in found["made"].items()
    ]
    rows.append(
        ("memory held to search", f"{found['held_bytes'] / 1e9:.2f} GB, {found['held_bytes'] / entries:.0f} B an entry")
    )
    if found["recall"]:
        rows.append(("recalled mass", f"{found['recall']['mass']:.3f}"))
    for size, timing in found["search"].items():
        told = f"{1000 * timing['median']:.1f} ms (×{timing['ratio']:.2f})"
        rows.append((f"one search of {found['rows']} rows, {int(size):,} entries", told))
    return Table(("", ""), tuple(rows))


def _own(found: Mapping[str, Any]) -> Table:
    batches = list(found)
    rows = []
    for name in found[batches[0]]:
        cells = []
        for batch in batches:
            told, base = found[batch][name], next(iter(found[batch].values()))
            ratio = told["ratio"] * base["tokens"] / told["tokens"]
            cells.append(f"{1000 * told['median'] / told['sentences']:.1f} (×{ratio:.2f}, ±{told['spread'] / 2:.0%})")
        rows.append((name, *cells))
    return Table(("", *(f"batch {batch}" for batch in batches)), tuple(rows))


def _recall(found: Mapping[str, Any]) -> Table:
    nearest = f"of the {found['k']} nearest"
    row = (f"{found['num_queries']:,}", f"{found['recall']:.3f}", f"{found['mass']:.3f}", f"{found['temperature']:.4g}")
    return Table(("queries", nearest, "of their weight", "T"), (row,))


def _growth(found: Mapping[str, Any]) -> Table:
    rows = [(f"{int(size):,}", f"{1000 * t['median']:.2f}", f"×{t['ratio']:.2f}") for size, t in found.items()]
    return Table(("entries", "milliseconds", ""), tuple(rows))


_MADE_BY: dict[str, Callable[[Mapping[str, Any]], Table]] = {
    "methods": _by_batch,
    "engines": _by_batch,
    "original": _by_batch,
    "parts": _parts,
    "building": _building,
    "search": _search,
    "recall": _recall,
    "growth": _growth,
    "living": _living,
    "scale": _scale,
    "own": _own,
}
