"""BLEU against time for several ways to search one store.

    python benchmarks/frontier.py STORE DEV TEST OTHER OUT.json [SETTING…]
    python benchmarks/frontier.py times STORE TEST OUT.json
    python benchmarks/frontier.py report NAME.json… FIGURE.svg

OTHER is text of another domain, which a memory should not harm. STORE has both indexes (nearmt build --retrieval both).
For each setting, networks are trained on DEV and translate TEST, in batches of 32. A setting is one of

    sentences:ENTRIES          the entries of the sentences that are chosen for a source
    sentences:ENTRIES:DIMS     the same with fewer dimensions of the keys
    pruned:ENTRIES:PERCENT     the same without this part of the entries: those that the model knows best, as PLAC does
    merged:ENTRIES             the same without entries whose nearest neighbour has the same token
    tokens:PROBES              the index of all tokens, with so many lists searched
    tokens:PROBES:RERANKED     the same with an index of faiss
    lists:PROBES:DIMS          lists made of fewer dimensions of the keys
    both:ENTRIES               the two together
    exact                      all tokens, compared one by one

Finished settings are kept in OUT.json, and a second run goes on with the others. The second command times them side by
side on 64 sentences of TEST, without other work on the machine: in interleaved rounds, and with a network that always
trusts the model alone, so that all give the same output. The third prints one table of several such files, and draws
one panel for each. Time is processor time of all threads relative to the model alone.
"""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

SETTINGS = (
    "sentences:1000",
    "sentences:2000",
    "sentences:4000",
    "sentences:8000",
    "sentences:16000",
    "tokens:4",
    "tokens:8",
    "tokens:16",
    "tokens:64",
    "exact",
    "both:4000",
)

DEFAULTS = ("sentences:4000", "tokens:4")


def open_with(snapshot: Any, setting: str) -> Any:
    """The retriever of a setting."""
    from nearmt.datastore import Snapshot
    from nearmt.retrieval.modes import CombinedRetriever, open_tokens
    from nearmt.retrieval.sentences.retriever import SentenceRetriever

    kind, *given = setting.split(":")
    numbers = [int(number) for number in given]
    if kind == "sentences":
        if len(numbers) > 1:
            snapshot = with_dims(snapshot, numbers[1])
        return SentenceRetriever(snapshot, max_entries=numbers[0])
    if kind in ("pruned", "merged"):
        known, is_repeated = known_entries(snapshot)
        dropped = known >= np.percentile(known, 100 - numbers[1]) if kind == "pruned" else is_repeated
        print(f"{setting}: {dropped.mean():.1%} of the entries are left out", file=sys.stderr)
        return SentenceRetriever(without_entries(snapshot, dropped), max_entries=numbers[0])
    if kind == "both":
        return CombinedRetriever(snapshot, by_sentences=SentenceRetriever(snapshot, max_entries=numbers[0]))
    if kind == "lists":
        return lists_of_dims(snapshot, *numbers)
    if kind == "exact":
        return exact_retriever(snapshot)
    index = replace(snapshot.manifest.index, num_probes=numbers[0])
    if len(numbers) > 1:
        index = replace(index, reranked=numbers[1])
    return open_tokens(Snapshot(snapshot.folder, replace(snapshot.manifest, index=index)))


def with_dims(snapshot: Any, dims: int) -> Any:
    """The same store with only the first principal components of its keys."""
    from nearmt.datastore import Snapshot

    reduced, code = Snapshot(snapshot.folder, snapshot.manifest), snapshot.key_code
    reduced.keys = snapshot.keys[:, :dims].copy()
    reduced.key_code = replace(
        code,
        dims=dims,
        lowest=code.lowest[:dims],
        extent=code.extent[:dims],
        projection=code.projection[:, :dims].copy(),
    )
    return reduced


def lists_of_dims(snapshot: Any, probes: int, dims: int) -> Any:
    """A search in lists of the first principal components of the keys, made in memory."""
    from nearmt.retrieval.lists.clusters import Clusters, count_lists, sample_size
    from nearmt.retrieval.lists.index import ListIndex, Part
    from nearmt.retrieval.lists.retriever import ListRetriever

    reduced, count = with_dims(snapshot, dims), count_lists(len(snapshot))
    rows = np.random.default_rng(1).choice(len(snapshot), sample_size(count, len(snapshot)), replace=False)
    clusters = Clusters.trained(np.asarray(reduced.keys[np.sort(rows)]), count)
    stored = Part.of(reduced.keys, clusters.assign(reduced.keys), len(clusters), 0)
    return ListRetriever(reduced, ListIndex.starting_with(clusters, stored, len(snapshot), probes))


def known_entries(snapshot: Any) -> tuple[np.ndarray, np.ndarray]:
    """How well the model knows each entry, and whether an earlier entry next to it says the same.

    As in PLAC (Zhu et al., ACL 2023), an entry is known if the model gives its token and those of its neighbours the
    highest probability. Stores keep the probability itself, so the least of the entry and its four neighbours counts.
    """
    import torch

    from nearmt.retrieval.modes import open_tokens

    retriever = open_tokens(snapshot)
    probabilities = np.asarray(snapshot.probabilities, np.float32)
    known, is_repeated = probabilities.copy(), np.zeros(len(snapshot), bool)
    for start in range(0, len(snapshot), 1024):
        entries = np.arange(start, min(start + 1024, len(snapshot)))
        states = torch.from_numpy(snapshot.float_keys(entries))
        near = retriever.search(states, 5).entry_ids.numpy()
        others = np.where(near == entries[:, None], -1, near)
        known[entries] = np.minimum(known[entries], np.where(others >= 0, probabilities[others], 1).min(axis=1))
        first = np.where(others[:, 0] >= 0, others[:, 0], others[:, 1])  # the nearest but the entry itself
        same = (first >= 0) & (first < entries) & (snapshot.values[first] == snapshot.values[entries])
        is_repeated[entries] = same & ~is_repeated[first]
    return known, is_repeated


def without_entries(snapshot: Any, dropped: np.ndarray) -> Any:
    """The same store without some entries: a copy of the columns in memory."""
    from nearmt.datastore import Snapshot

    smaller, kept = Snapshot(snapshot.folder, snapshot.manifest), ~dropped
    for column in ("keys", "values", "probabilities"):
        setattr(smaller, column, np.asarray(getattr(snapshot, column))[kept])
    before = np.concatenate([[0], np.cumsum(kept)])  # entries that are left before each entry
    smaller.sentences = np.array(snapshot.sentences)
    smaller.sentences["first_entry"] = before[snapshot.sentences["first_entry"]]
    extent = snapshot.manifest.extent
    fewer = replace(extent, counts=replace(extent.counts, entries=int(kept.sum())))
    smaller.manifest = replace(snapshot.manifest, extent=fewer)
    return smaller


def exact_retriever(snapshot: Any) -> Any:
    """Compares every state with all entries, which form one subset for all sources."""
    import torch

    from nearmt.retrieval.sentences.retriever import SentenceRetriever, SubsetSearch

    class ExactSearch(SubsetSearch):
        def search(self, states: torch.Tensor, sources: torch.Tensor, k: int) -> Any:
            return super().search(states, torch.zeros_like(sources), k)

    class ExactRetriever(SentenceRetriever):
        def start(self, texts: Any, excluded: Any = None) -> ExactSearch:
            if any(ids is not None and len(ids) for ids in excluded or ()):
                raise SystemExit("the exact search is for dev and test sets without sentences of the store")
            return ExactSearch(self, everything)

    retriever = ExactRetriever(snapshot)
    everything = retriever._gathered([np.flatnonzero(retriever._allowed)])
    return retriever


def measure(store: str, dev: str, test: str, other: str, out: Path, settings: tuple[str, ...]) -> dict[str, Any]:
    from nearmt.building.compatibility import ModelRequest, load_model
    from nearmt.datastore import Snapshot
    from nearmt.decoding.decoder import Decoder
    from nearmt.evaluation.held_out import HeldOutSet, translate_held_out
    from nearmt.training.devset import dev_from_pairs, load_pairs
    from nearmt.training.train_store import AdaptationSettings, StoreTrainer

    results: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
    snapshot = Snapshot.open(store)
    model = load_model(snapshot.manifest, ModelRequest())
    pairs = load_pairs(Path(dev), snapshot.manifest.languages)
    dev_set = dev_from_pairs(model, snapshot, pairs.pairs, pairs.origin)
    test_set, other_set = (
        HeldOutSet.from_pairs(model, load_pairs(Path(path), snapshot.manifest.languages).pairs)
        for path in (test, other)
    )

    def translated(decoder: Decoder) -> dict[str, float]:
        began = time.process_time()
        bleu = translate_held_out(decoder, test_set).bleu
        milliseconds = 1000 * (time.process_time() - began) / len(test_set)
        return {"bleu": bleu, "ms": milliseconds, "other": translate_held_out(decoder, other_set).bleu}

    chosen = AdaptationSettings(max_trials=2, max_decoded=60)  # fewer trials than nearmt train, to save time
    for setting in ("base", *settings):
        if setting in results:
            continue
        if setting == "base":
            results[setting] = {"base": translated(Decoder(model))}
        else:
            retriever = open_with(snapshot, setting)
            networks, record = StoreTrainer(model, retriever, chosen).train(dev_set)
            results[setting] = {
                **{name: translated(Decoder(model, retriever, network)) for name, network in networks.items()},
                "losses": dict(record.held_out.losses),
                "recalled_weight": record.recall.mass,
            }
        out.write_text(json.dumps(results, indent=1))
        print(setting, json.dumps(results[setting]), file=sys.stderr, flush=True)
    return results


def measure_times(store: str, test: str, out: Path, rounds: int = 3) -> None:
    """Add the processor time of every setting, relative to the model alone, to the results."""
    from functools import partial

    from nearmt.building.compatibility import ModelRequest, load_model
    from nearmt.datastore import Snapshot
    from nearmt.decoding.decoder import Decoder
    from nearmt.experiments.bench.own import num_tokens
    from nearmt.experiments.bench.sizes import unused_network
    from nearmt.experiments.bench.timing import interleaved
    from nearmt.training.devset import load_pairs

    results, snapshot = json.loads(out.read_text()), Snapshot.open(store)
    model, network = load_model(snapshot.manifest, ModelRequest()), unused_network(32)
    texts = [pair.source for pair in load_pairs(Path(test), snapshot.manifest.languages).pairs[:64]]
    sources = model.tokenize_sources(texts)
    decoders = {"base": Decoder(model)} | {
        setting: Decoder(model, open_with(snapshot, setting), network) for setting in results if setting != "base"
    }
    timings = interleaved({name: partial(num_tokens, one, sources, texts) for name, one in decoders.items()}, rounds)
    for name, timing in timings.items():
        results[name]["time"] = timing.processor_over(timings["base"])
    out.write_text(json.dumps(results, indent=1))


def scores_of(results: dict[str, Any]) -> dict[tuple[str, str], dict[str, float]]:
    """(setting, network) → its scores, without those of the model alone."""
    alone = results["base"]["base"]["ms"]
    return {
        (setting, name): {**score, "time": scores.get("time", score["ms"] / alone)}
        for setting, scores in results.items()
        for name, score in scores.items()
        if setting != "base" and isinstance(score, dict) and "ms" in score
    }


def table(files: dict[str, dict[str, Any]]) -> str:
    """BLEU, and time relative to the model alone, of every setting on every domain."""
    bases = {domain: results["base"]["base"] for domain, results in files.items()}
    lines = [
        "| setting | network | " + " | ".join(f"{domain} | time | other text" for domain in files) + " |",
        "|---|---|" + "---:|---:|---:|" * len(files),
        "| base | | "
        + " | ".join(f"{base['bleu']:.2f} | ×1.00 | {base['other']:.2f}" for base in bases.values())
        + " |",
    ]
    found = {domain: scores_of(results) for domain, results in files.items()}
    for setting, name in dict.fromkeys(key for scores in found.values() for key in scores):
        cells = []
        for scores in found.values():
            score = scores.get((setting, name))
            cells.append(f"{score['bleu']:.2f} | ×{score['time']:.2f} | {score['other']:.2f}" if score else " | | ")
        lines.append(f"| {setting} | {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(files: dict[str, dict[str, Any]], path: Path) -> None:
    """A panel for each domain, with one point for each setting and network."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.5 * len(files), 4.2), layout="constrained")
    panels = figure.subplots(1, len(files), squeeze=False)[0]
    for axes, (domain, results) in zip(panels, files.items(), strict=True):
        base = results["base"]["base"]
        found = scores_of(results)
        for setting in dict.fromkeys(setting for setting, _ in found):
            points = {name: found[setting, name] for name in ("adaptive", "robust") if (setting, name) in found}
            places = [(score["time"], score["bleu"]) for score in points.values()]
            axes.plot(*zip(*places, strict=True), color="lightgrey", linewidth=0.8, zorder=0)
            edge = "black" if setting in DEFAULTS else "none"
            for name, place in zip(points, places, strict=True):
                colour, shape = ("C0", "o") if name == "adaptive" else ("C1", "s")
                axes.plot(*place, shape, color=colour, markeredgecolor=edge)
            axes.annotate(setting, places[-1], fontsize=6, xytext=(4, 4), textcoords="offset points")
        axes.margins(x=0.2)
        axes.axhline(base["bleu"], color="grey", linewidth=0.8)
        axes.set_title(
            f"{domain} (line: the model alone; circles: adaptive; squares: robust; black: defaults)", fontsize=7
        )
        axes.set_xlabel("processor time × the model alone")
        axes.set_ylabel("BLEU")
    figure.suptitle("Circles: adaptive. Squares: robust. Black edge: defaults. Line: the model alone.", fontsize=8)
    figure.savefig(path)


def main() -> None:
    if sys.argv[1] == "times":
        store, test, out = sys.argv[2:]
        measure_times(store, test, Path(out))
        return
    if sys.argv[1] == "report":
        *names, figure = map(Path, sys.argv[2:])
        files = {path.name.split(".")[0]: json.loads(path.read_text()) for path in names}
        print(table(files))
        draw(files, figure)
        return
    store, dev, test, other, out, *settings = sys.argv[1:]
    measure(store, dev, test, other, Path(out), tuple(settings) or SETTINGS)


if __name__ == "__main__":
    if len(sys.argv) < (4 if sys.argv[1:2] in (["report"], ["times"]) else 6):
        sys.exit(__doc__)
    main()
