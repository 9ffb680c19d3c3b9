#!/usr/bin/env python3
"""Extract a small memory, dev and test set from one corpus: LibreOffice help for the demo, and openEHR.

    extract.py libreoffice_help.tsv.gz OUT
    extract.py openehr.tsv.gz OUT --memory 5000 --dev 600 --test 300

Each line of the file is `german<TAB>english`, in document order. Dev and test are contiguous ranges of it; the
memory consists of other ranges, spread over the whole file. A dev or test pair is dropped if its source is at least
90 % similar (rapidfuzz ratio) to a source of the memory, and a test pair also if it is that similar to one of dev:
repetition must not flatter the demo.
"""

import argparse
import gzip
from pathlib import Path

import numpy as np
from rapidfuzz import fuzz, process

RANGE_PAIRS = 250
DEV_AT, TEST_AT = 0.35, 0.70  # relative positions in the file
SIMILAR = 90


def similar_to_any(sources: list[str], others: list[str]) -> np.ndarray:
    """Return which sources are near-duplicates of one of the others."""
    scores = process.cdist(sources, others, scorer=fuzz.ratio, score_cutoff=SIMILAR, dtype=np.uint8, workers=-1)
    return scores.max(axis=1) >= SIMILAR


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--memory", type=int, default=20_000)
    parser.add_argument("--dev", type=int, default=1_000)
    parser.add_argument("--test", type=int, default=500)
    args = parser.parse_args()
    out: Path = args.out
    with gzip.open(args.file, "rt", encoding="utf-8") as lines:
        pairs = [tuple(line.rstrip("\n").split("\t")[:2]) for line in lines]
    pairs = list(dict.fromkeys(p for p in pairs if len(p) == 2 and len(p[0].split()) >= 2))
    dev_at, test_at = int(DEV_AT * len(pairs)), int(TEST_AT * len(pairs))
    reserved = set(range(dev_at, dev_at + 4 * args.dev)) | set(range(test_at, test_at + 4 * args.test))
    ranges = [
        range(at, at + RANGE_PAIRS)
        for at in range(0, len(pairs) - RANGE_PAIRS, RANGE_PAIRS)
        if not reserved & {at, at + RANGE_PAIRS - 1}
    ]
    wanted = min(args.memory // RANGE_PAIRS, len(ranges))
    every = len(ranges) / wanted
    chosen = [ranges[int(i * every)] for i in range(wanted)]
    memory = [pairs[i] for pair_range in chosen for i in pair_range]
    known = [p[0] for p in memory]

    def dissimilar(at: int, count: int, others: list[str]) -> list[tuple[str, ...]]:
        candidates = [pairs[i] for i in range(at, at + 4 * count)]
        copies = similar_to_any([p[0] for p in candidates], others)
        kept = [p for p, copy in zip(candidates, copies, strict=True) if not copy]
        print(f"{len(candidates)} pairs, {int(copies.sum())} too similar, {len(kept[:count])} kept")
        return kept[:count]

    dev = dissimilar(dev_at, args.dev, known)
    test = dissimilar(test_at, args.test, known + [p[0] for p in dev])
    out.mkdir(parents=True, exist_ok=True)
    for name, part in (("memory", memory), ("dev", dev), ("test", test)):
        text = "".join(f"{german}\t{english}\n" for german, english in part)
        with gzip.GzipFile(out / f"{name}.tsv.gz", "wb", mtime=0) as packed:
            packed.write(text.encode())
        print(f"{name}: {len(part)} pairs")


if __name__ == "__main__":
    main()
