#!/usr/bin/env python3
"""Extract the demo's two memories, each with a dev and a test set: Canadian company law, and the Python documentation.

    extract.py law.tsv.gz OUT/law --domain law
    extract.py it.tsv.gz OUT/python --domain python

Each line of the file is `french<TAB>english`, in document order; the file may hold other documents too. The parts
consist of whole documents, listed below by how the English of their first line begins and how that of the next
document's first line begins. Law: of the six federal acts on companies, banks and insurers, in the order of the
file, the first is dev, the last is test and the others are the memory. Python: of the pages on asyncio, the longest
is test, the next two are dev; the memory is the other asyncio pages and pages on processes, files and testing.

Pairs that are very short or long are dropped. A dev or test pair is dropped if its French or its English is at least
90 % similar (rapidfuzz ratio) to that of a pair of the memory, as written or without case, punctuation and digits, and
a test pair also if it is that similar to one of dev: repetition must not flatter the demo.
"""

import argparse
import gzip
import re
from pathlib import Path

import numpy as np
from rapidfuzz import fuzz, process

WORDS = range(3, 36)
SIMILAR = 90
LIMITS = {"dev": 400, "test": 200}

Pair = tuple[str, str]
Document = tuple[str, str]

DOCUMENTS: dict[str, dict[str, list[Document]]] = {
    "law": {
        "memory": [
            ("An Act to revise and amend the law governing federal trust and loan companies", "An Act "),
            ("An Act to revise and amend the law governing cooperative credit associations", "An Act "),
            ("An Act respecting banks and banking", "An Act "),
            ("An Act respecting insurance companies and fraternal benefit societies", "An Act "),
        ],
        "dev": [("An Act respecting cooperatives", "An Act ")],
        "test": [("An Act respecting Canadian business corporations", "An Act ")],
    },
    "python": {
        "memory": [
            ("Socket Programming HOWTO", "Glossary"),
            ("An event loop policy is a global object", "XMLParser Objects"),
            ("This module provides a portable way of using operating system", "Graphic User Interface FAQ"),
            ("The ZIP file format is a common archive", "This module defines the following functions:"),
            ("The asyncio module is designed to be portable", "Assignment statements in Python do not copy"),
            ("The socketserver module simplifies", "What's New In Python 3.11"),
            ("pathlib --- Object-oriented filesystem paths", "338 -- Executing modules as scripts"),
            ("Source code: Lib/asyncio/subprocess.py", "Python Setup and Usage"),
            ("asyncio synchronization primitives are designed", "When identifying things (such as host names)"),
            ("Logging HOWTO", "Frame objects"),
            ("This section outlines high-level asyncio primitives to run", "Concurrent Execution"),
            ("contextlib --- Utilities for with-statement contexts", "Porting Extension Modules to Python 3"),
            ("The subprocess module allows you to spawn", "There are a couple of useful utilities provided in"),
            ("All the user-callable functions and constructors take", "pdb --- The Python Debugger"),
            ("The unittest module provides a rich set of tools", "DateTime Objects"),
            ("Source code: Lib/asyncio/futures.py", "Simple statements"),
            ("Streams are high-level async/await-ready primitives", "Unicode HOWTO"),
        ],
        "dev": [
            ("Transports and Protocols are used by the low-level", "The copyreg module offers"),
            ("This section outlines high-level asyncio APIs to work", "Using Python on Unix platforms"),
        ],
        "test": [("Source code: Lib/asyncio/events.py", "This reference manual describes the Python")],
    },
}


def read(file: Path) -> list[Pair]:
    """Read all pairs in their order."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        rows = [line.rstrip("\n").split("\t") for line in lines]
    return [(row[0], row[1]) for row in rows]


def usable(pair: Pair) -> bool:
    """Tell whether both sides have a useful length."""
    return all(len(side.split()) in WORDS for side in pair)


def cut(pairs: list[Pair], documents: list[Document]) -> list[Pair]:
    """Return the usable pairs of the given documents, each once."""
    kept: dict[Pair, None] = {}
    for first, following in documents:
        starts = [i for i, (_, english) in enumerate(pairs) if english.startswith(first)]
        if len(starts) != 1:
            raise SystemExit(f"{len(starts)} lines begin with {first!r}; there must be one")
        later = range(starts[0] + 1, len(pairs))
        end = next((i for i in later if pairs[i][1].startswith(following)), len(pairs))
        found = [pair for pair in pairs[starts[0] : end] if usable(pair)]
        print(f"  {len(found):5} of {end - starts[0]:5} pairs: {first}")
        kept.update(dict.fromkeys(found))
    return list(kept)


def plain(text: str) -> str:
    """Drop case, punctuation and digits."""
    return " ".join(re.sub(r"[\W\d_]+", " ", text.lower()).split())


def dissimilar(pairs: list[Pair], others: list[Pair]) -> list[Pair]:
    """Return the pairs of which neither side is a near-duplicate of that side of the others."""
    copies = np.zeros(len(pairs), dtype=bool)
    for form in (str, plain):
        for side in (0, 1):
            texts, known = [form(pair[side]) for pair in pairs], [form(pair[side]) for pair in others]
            scores = process.cdist(texts, known, scorer=fuzz.ratio, score_cutoff=SIMILAR, dtype=np.float32)
            copies |= scores.max(axis=1) >= SIMILAR
    print(f"  {len(pairs)} pairs, {int(copies.sum())} too similar")
    return [pair for pair, copy in zip(pairs, copies, strict=True) if not copy]


def spread(pairs: list[Pair], count: int) -> list[Pair]:
    """Return at most `count` pairs, evenly spread."""
    return pairs if len(pairs) <= count else [pairs[i * len(pairs) // count] for i in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="gzipped pairs, one per line")
    parser.add_argument("out", type=Path, help="folder for memory.tsv.gz, dev.tsv.gz and test.tsv.gz")
    parser.add_argument("--domain", choices=sorted(DOCUMENTS), required=True)
    args = parser.parse_args()
    out: Path = args.out
    pairs = read(args.file)
    parts = {name: cut(pairs, documents) for name, documents in DOCUMENTS[args.domain].items()}
    parts["dev"] = spread(dissimilar(parts["dev"], parts["memory"]), LIMITS["dev"])
    parts["test"] = spread(dissimilar(parts["test"], parts["memory"] + parts["dev"]), LIMITS["test"])
    out.mkdir(parents=True, exist_ok=True)
    for name, part in parts.items():
        text = "".join(f"{french}\t{english}\n" for french, english in part)
        with gzip.GzipFile(out / f"{name}.tsv.gz", "wb", mtime=0) as packed:
            packed.write(text.encode())
        print(f"{name}: {len(part)} pairs")


if __name__ == "__main__":
    main()
