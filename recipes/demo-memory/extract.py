#!/usr/bin/env python3
"""Make a small memory, dev and test set of one text: the demo's from the LibreOffice help, a second from openEHR.

    extract.py libreoffice_help.tsv.gz OUT
    extract.py openehr.tsv.gz OUT --memory 5000 --dev 600 --test 300

The file holds `german<TAB>english` in the order of the pages. Dev and test are contiguous stretches of it; the
memory is made of other stretches, spread over the whole file. A dev or test pair goes if its source is 90 % or more
similar to a source of the memory (rapidfuzz ratio), or of the other set: the demo must not profit from repetition.
"""

import argparse
import gzip
from pathlib import Path

import numpy as np
from rapidfuzz import fuzz, process

STRETCH = 250
DEV_AT, TEST_AT = 0.35, 0.70  # where in the file the stretches begin
SIMILAR = 90


def similar_to_any(sources: list[str], others: list[str]) -> np.ndarray:
    """Which sources are nearly a copy of one of the others."""
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
    stretches = [
        range(at, at + STRETCH)
        for at in range(0, len(pairs) - STRETCH, STRETCH)
        if not reserved & {at, at + STRETCH - 1}
    ]
    wanted = min(args.memory // STRETCH, len(stretches))
    every = len(stretches) / wanted
    chosen = [stretches[int(i * every)] for i in range(wanted)]
    memory = [pairs[i] for stretch in chosen for i in stretch]
    known = [p[0] for p in memory]

    def unlike(at: int, count: int, others: list[str]) -> list[tuple[str, ...]]:
        stretch = [pairs[i] for i in range(at, at + 4 * count)]
        copies = similar_to_any([p[0] for p in stretch], others)
        kept = [p for p, copy in zip(stretch, copies, strict=True) if not copy]
        print(f"{len(stretch)} pairs, {int(copies.sum())} like the memory, {len(kept[:count])} kept")
        return kept[:count]

    dev = unlike(dev_at, args.dev, known)
    test = unlike(test_at, args.test, known + [p[0] for p in dev])
    out.mkdir(parents=True, exist_ok=True)
    for name, part in (("memory", memory), ("dev", dev), ("test", test)):
        text = "".join(f"{german}\t{english}\n" for german, english in part)
        with gzip.GzipFile(out / f"{name}.tsv.gz", "wb", mtime=0) as packed:
            packed.write(text.encode())
        print(f"{name}: {len(part)} pairs")


if __name__ == "__main__":
    main()
