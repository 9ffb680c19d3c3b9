"""Try every property with fresh random examples, round after round, for at least some minutes.

    python tests/fuzz.py --minutes 20

It stops at the first round that finds something and shows it. What it finds belongs into the test as an `@example`.
"""

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

_PYTEST = ("-m", "pytest", "-m", "hypothesis", "--hypothesis-profile=fuzz", "--hypothesis-show-statistics")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("pytest", nargs="*", help="what pytest gets, behind --: files, -k, -n")
    options = parser.parse_args()
    begun, rounds, total = time.monotonic(), 0, 0
    while (time.monotonic() - begun) / 60 < options.minutes:
        rounds += 1
        command = [sys.executable, *_PYTEST, *options.pytest]
        done = subprocess.run(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            print(done.stdout)
            print(f"round {rounds} found something, after {total:,} examples in the rounds before")
            return done.returncode
        total += sum(int(number) for number in re.findall(r"(\d+) passing", done.stdout))
        print(f"round {rounds}: {total:,} examples in {(time.monotonic() - begun) / 60:.1f} minutes", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
