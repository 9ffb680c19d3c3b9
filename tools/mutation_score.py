"""Print the score of the last `make mutants` as a Markdown table:  python tools/mutation_score.py

The score is the share of mutants that made a test fail or run for ever. A mutant that no selected test runs counts as
survived. `mutmut show NAME` prints one mutant, `mutmut results` the names of the survivors.
"""

import json
import sys
from collections import Counter
from pathlib import Path

from mutmut.stats import status_by_exit_code

SOURCE = Path(__file__).parents[1] / "mutants" / "src" / "nearmt"
NOTICED = ("killed", "timeout")


def statuses(results: Path) -> Counter[str]:
    """How many mutants of one file have each status."""
    codes = json.loads(results.read_text(encoding="utf-8"))["exit_code_by_key"].values()
    return Counter(status_by_exit_code[code] for code in codes)


def row(name: str, counts: Counter[str]) -> str:
    killed, checked = sum(counts[status] for status in NOTICED), counts.total() - counts["not checked"]
    numbers = (counts.total(), killed, counts["survived"], counts["no tests"])
    return f"| {name} | {' | '.join(f'{number:,}' for number in numbers)} | {100 * killed / max(1, checked):.1f} % |"


def main() -> None:
    found = {path.relative_to(SOURCE).as_posix(): statuses(path) for path in sorted(SOURCE.rglob("*.py.meta"))}
    modules = {name.removesuffix(".py.meta"): counts for name, counts in found.items() if counts}
    if not modules:
        sys.exit("there are no results: run make mutants")
    total = sum(modules.values(), Counter[str]())
    print("| Module | Mutants | Killed | Survived | Not run | Score |\n|---|---:|---:|---:|---:|---:|")
    for name, counts in modules.items():
        print(row(f"`{name}`", counts))
    print(row("all", total))
    if unchecked := total["not checked"]:
        print(f"{unchecked} of them are not checked yet")


if __name__ == "__main__":
    main()
