"""What a user would do instead of a memory, with the same model, memory, test set and processor time.

    python benchmarks/alternatives.py STORE MEMORY DEV TEST OTHER OUT --build-seconds 400 [--general FILE…]

Compares fine-tuning (all weights, or LoRA) for as long as the store took and for ten times as long, adaptation to each
sentence, copying the best match, the model alone, the store, and a store on top of the fine-tuned model. STORE was
built from MEMORY; it is copied and trained on DEV. Building it took `--build-seconds` of processor time, all threads
together. OTHER is text of another domain, on which nothing should get worse. Terms are n-grams of MEMORY that are rare
in the `--general` files.

Finished steps are kept in OUT, and a second run goes on with the others. Prints the table of what is finished;
`--report` does no more than that.
"""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

from nearmt.experiments.alternatives.report import Report
from nearmt.experiments.alternatives.results import Results
from nearmt.experiments.alternatives.run import run
from nearmt.experiments.alternatives.settings import FULL, LORA, AlternativesSettings, Files
from nearmt.experiments.alternatives.terms import Terms
from nearmt.experiments.alternatives.workbench import Workbench
from nearmt.training.train_store import AdaptationSettings


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("store", "memory", "dev", "test", "other", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--build-seconds", type=float, required=True, help="processor seconds that building took")
    parser.add_argument("--general", type=Path, nargs="*", default=[], help="text of other domains; default: OTHER")
    parser.add_argument("--budget", type=float, help="processor seconds; default: what building and training took")
    parser.add_argument("--long-for", default=f"{FULL},{LORA}", help="what is tuned for ten times as long as well")
    parser.add_argument("--retrieval", help="train the store for this retrieval only")
    parser.add_argument("--adapted", type=int, default=50, help="sentences that are translated by adapted models")
    parser.add_argument("--only", default="", help="steps to run, separated by commas")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--report", action="store_true", help="only print the table")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    torch.set_num_threads(given.threads)
    files = Files(given.memory, given.dev, given.test, given.other, tuple(given.general))
    settings = replace(
        AlternativesSettings(),
        budget=given.budget,
        long_kinds=tuple(filter(None, given.long_for.split(","))),
        sentence_test=given.adapted,
    )
    results = Results(given.out)
    bench = Workbench(
        given.store,
        given.build_seconds,
        files,
        results,
        settings,
        AdaptationSettings(retrieval=given.retrieval),
        lambda line: print(time.strftime("%H:%M"), line, file=sys.stderr, flush=True),
    )
    if not given.report:
        run(bench, list(filter(None, given.only.split(","))))
    general = [pair.target for path in files.general or (files.other,) for pair in bench.pairs(path)]
    terms = Terms.of([pair.target for pair in bench.pairs(files.memory)], general)
    print(Report(results, bench.test.pairs, bench.other.pairs, terms, bench.own_system).as_markdown())


if __name__ == "__main__":
    main()
