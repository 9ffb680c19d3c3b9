"""Holds out pairs that the demo model is not trained on: a dev set for its loss and two test sets for its model card.

The choice depends only on the contents of the files. A training pair is dropped, too, if its source or target equals
that of a held-out pair apart from case and punctuation: everyday sentences recur in many variants.
"""

import gzip
import random
import re
from dataclasses import dataclass
from pathlib import Path

TESTS = {"tatoeba": 1000, "europarl": 250, "newstest": 250, "games": 250, "captions": 250}
DEV_EACH = 200


@dataclass(frozen=True)
class Specification:
    """A training corpus: `FILE`, `FILE:N` (N random lines per epoch) or `FILE*N` (N times per epoch)."""

    path: Path
    take: int | None = None
    times: int = 1

    @classmethod
    def parse(cls, text: str) -> "Specification":
        text, _, times = text.partition("*")
        path, _, take = text.partition(":")
        return cls(Path(path), int(take) if take else None, int(times) if times else 1)


def read_pairs(path: Path) -> list[tuple[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        rows = (line.rstrip("\n").split("\t") for line in lines)
        return [(row[0], row[1]) for row in rows if len(row) >= 2 and row[0] and row[1]]


def write_pairs(path: Path, pairs: list[tuple[str, str]]) -> None:
    with path.open("w", encoding="utf-8") as out:
        out.writelines(f"{source}\t{target}\n" for source, target in pairs)


def plain(text: str) -> str:
    return re.sub(r"\W+", " ", text.lower()).strip()


def split(work: Path, specifications: list[Specification]) -> list[list[tuple[str, str]]]:
    """Write dev.tsv, test-tatoeba.tsv and test-general.tsv to `work`; return the remaining pairs of each corpus."""
    corpora = [read_pairs(s.path) for s in specifications]
    dev, tests = [], {"tatoeba": [], "general": []}
    for specification, pairs in zip(specifications, corpora, strict=True):
        name = specification.path.name.split(".")[0]
        if name not in TESTS:
            continue
        candidates = sorted({p for p in pairs if p[0].count(" ") >= 2})
        drawn = random.Random(name).sample(candidates, TESTS[name] + DEV_EACH)
        tests["tatoeba" if name == "tatoeba" else "general"] += drawn[DEV_EACH:]
        dev += drawn[:DEV_EACH]
    write_pairs(work / "dev.tsv", dev)
    for name, pairs in tests.items():
        write_pairs(work / f"test-{name}.tsv", pairs)
    held = dev + tests["tatoeba"] + tests["general"]
    sources, targets = {plain(p[0]) for p in held}, {plain(p[1]) for p in held}
    return [[p for p in pairs if plain(p[0]) not in sources and plain(p[1]) not in targets] for pairs in corpora]
