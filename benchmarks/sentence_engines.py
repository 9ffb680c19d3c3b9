"""Embedded search engines as a sentence index: how fast they are, and how well what they find covers a source.

    python benchmarks/sentence_engines.py MEMORY.tsv TEST.tsv [COPIES]

MEMORY.tsv has a source in its first column; COPIES repeats it, with other numbers, to see how an engine grows. Each
engine proposes 512 sentences for each source of TEST.tsv, and the coverage of nearmt's index chooses 4,000 words' worth
among them. `covered` is the share of the source's bigrams that the chosen sentences have. Engines that are not
installed (tantivy, bm25s) are left out. Prints one JSON object.
"""

import json
import resource
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Find = Callable[[str], np.ndarray]
COUNT, WORDS, QUERIES = 512, 4000, 200


def sources(path: str, copies: int = 1) -> list[str]:
    lines = [line.split("\t")[0].strip() for line in Path(path).read_text(encoding="utf-8").splitlines()]
    return [f"{line} {copy}" if copy else line for copy in range(copies) for line in lines if line]


def own(texts: list[str], folder: Path) -> Find:
    from nearmt.retrieval.sentences import selection
    from nearmt.retrieval.sentences.segments import Segment
    from nearmt.retrieval.sentences.terms import terms_of, terms_of_all

    segment = Segment.of(0, *terms_of_all(texts))

    def find(text: str) -> np.ndarray:
        terms = terms_of(text)
        ngrams = np.unique((selection.indexed_ngrams(terms, np.array([0, len(terms)])) >> np.uint64(32)).astype("u4"))
        begins, ends = segment.ranges_of(ngrams)
        order = np.argsort(ends - begins, kind="stable")
        order = order[: max(1, np.searchsorted(np.cumsum((ends - begins)[order]), 30_000, side="right"))]
        weights = np.log1p(len(texts) / np.maximum(ends - begins, 1)[order]).astype(np.float32)
        ids, scores = selection.score_table(int((ends - begins)[order].sum()))
        selection.add_scores(begins[order], ends[order], weights, segment.postings, 0, ids, scores)
        slots = np.flatnonzero(ids >= 0)
        return ids[slots[np.argsort(-scores[slots], kind="stable")[:COUNT]]]

    return find


def words(text: str) -> list[str]:
    return [word for word in "".join(c if c.isalnum() else " " for c in text.lower()).split() if word]


def sqlite_fts5(texts: list[str], folder: Path) -> Find:
    database = sqlite3.connect(folder / "fts.db")
    database.execute("CREATE VIRTUAL TABLE sentences USING fts5(text, content='')")
    database.executemany("INSERT INTO sentences(rowid, text) VALUES (?, ?)", enumerate(texts))
    database.commit()

    def find(text: str) -> np.ndarray:
        query = " OR ".join(f'"{word}"' for word in dict.fromkeys(words(text)))
        rows = database.execute(
            "SELECT rowid FROM sentences WHERE sentences MATCH ? ORDER BY rank LIMIT ?", (query, COUNT)
        )
        return np.array([row[0] for row in rows], np.int64)

    return find


def tantivy(texts: list[str], folder: Path) -> Find:
    import tantivy as engine

    builder = engine.SchemaBuilder()
    builder.add_text_field("text", stored=False)
    builder.add_integer_field("id", stored=True, fast=True)
    index = engine.Index(builder.build(), path=str(folder))
    writer = index.writer(heap_size=200_000_000, num_threads=1)
    for number, text in enumerate(texts):
        writer.add_document(engine.Document(text=text, id=number))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()

    def find(text: str) -> np.ndarray:
        query = index.parse_query(" ".join(words(text)), ["text"])
        hits = searcher.search(query, COUNT).hits
        return np.array([searcher.doc(address)["id"][0] for _, address in hits], np.int64)

    return find


def bm25s(texts: list[str], folder: Path) -> Find:
    import bm25s as engine

    retriever = engine.BM25()
    retriever.index([words(text) for text in texts], show_progress=False)

    def find(text: str) -> np.ndarray:
        found = retriever.retrieve([words(text)], k=min(COUNT, len(texts)), show_progress=False)
        return np.asarray(found.documents[0], np.int64)

    return find


def coverage(texts: list[str], text: str, candidates: np.ndarray) -> float:
    """The share of the text's bigrams in the sentences that are chosen among the candidates."""
    from nearmt.retrieval.sentences import selection
    from nearmt.retrieval.sentences.terms import terms_of, terms_of_all

    terms, chosen_terms = terms_of(text), terms_of_all([texts[i] for i in candidates])
    if len(terms) < 2 or not len(candidates):
        return 1.0 if len(terms) < 2 else 0.0
    hashes, numbers, count = selection.ngram_table(terms)
    places = np.arange(len(candidates))
    shared, counts = selection.shared_ngrams(places, *chosen_terms, hashes, numbers, count)
    weights = np.log1p(len(candidates) / np.maximum(np.bincount(shared, minlength=count), 1)).astype(np.float32)
    chosen = selection.cover(shared, counts, weights, np.diff(chosen_terms[1]), np.float32(0.7), WORDS)

    def bigrams(found: np.ndarray) -> set[tuple[int, int]]:
        return set(zip(found[:-1].tolist(), found[1:].tolist(), strict=True))

    covered = set().union(*(bigrams(terms_of(texts[candidates[i]])) for i in chosen.tolist()))
    wanted = bigrams(terms)
    return len(wanted & covered) / len(wanted)


def measure(name: str, texts: list[str], queries: list[str]) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp())
    try:
        before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
        find = {"own": own, "sqlite_fts5": sqlite_fts5, "tantivy": tantivy, "bm25s": bm25s}[name](texts, folder)
        built = time.perf_counter() - began
        find(queries[0])
        found, times = [], []
        for query in queries:
            began = time.perf_counter()
            found.append(find(query))
            times.append(time.perf_counter() - began)
        return {
            "engine": name,
            "sentences": len(texts),
            "build_seconds": round(built, 1),
            "query_ms_median": round(1000 * float(np.median(times)), 2),
            "query_ms_p95": round(1000 * float(np.quantile(times, 0.95)), 2),
            "disk_mb": round(sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) / 1e6, 1),
            "more_resident_mb": round((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024),
            "covered": round(
                float(np.mean([coverage(texts, q, ids) for q, ids in zip(queries, found, strict=True)])), 4
            ),
        }
    finally:
        shutil.rmtree(folder)


def main() -> None:
    import multiprocessing

    memory, test, *rest = sys.argv[1:]
    texts, queries = sources(memory, int(rest[0]) if rest else 1), sources(test)[:QUERIES]
    results = []
    for name in ("own", "tantivy", "sqlite_fts5", "bm25s"):
        try:
            with multiprocessing.get_context("spawn").Pool(1) as pool:  # so that memory is an engine's own
                results.append(pool.apply(measure, (name, texts, queries)))
        except ImportError as error:
            results.append({"engine": name, "left_out": str(error)})
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main()
