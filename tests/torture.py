"""Kill the writers of a store at random moments and look whether anything was lost.

    PYTHONPATH=examples python tests/torture.py --kills 300

A process that has loaded a tiny model forks one child after another. Each changes a store (build, add, correct, remove,
compact, train, or repair after a byte was flipped), says over a pipe which changes have returned, and is killed with
SIGKILL: half of the time after a random delay, half of the time at a random touch of the disk. Then another child looks
at what is left: the store opens, its checksums fit, it holds what was reported and nothing else but perhaps commits of
the change under way, it is searched rightly, a new Translator translates, and nothing is left lying about after the
next change. A repair that was killed is made again, and the damaged files are there to be deleted.
"""

import argparse
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import faiss
import torch
import toy

from nearmt.building import editing
from nearmt.models import Seq2Seq
from nearmt.store import build
from torture_children import Fate, run_child
from torture_memory import PAIRS_A_COMMIT, Change, Memory, random_change
from torture_store import (
    ADAPTATION,
    BUILD,
    check_store,
    check_unfinished_build,
    damage,
    finish_repair,
    is_same_store,
    perform,
    settle,
    write_memory,
)

KINDS = ("build", "add", "correct", "remove", "compact", "train", "repair")
_FOLLOWING = 2  # changes behind the one that is meant to be killed, so that a late kill hits something too


class Torture:
    """One store that is changed and killed, and one place where builds are."""

    def __init__(self, folder: Path, model: Seq2Seq, seed: int) -> None:
        self.folder, self.model, self.random = folder, model, random.Random(seed)
        self.inputs = write_memory(folder)
        self.built = Memory.of(self.inputs)
        self.store, self.memory = folder / "living.store", self.built.copy()
        self.kills: Counter[str] = Counter()
        self.ways: Counter[str] = Counter()
        self.places: Counter[str] = Counter()
        self.lengths: dict[str, tuple[float, int]] = {}  # seconds and touches of the disk, by kind of change
        self.builds = 0

    def prepare(self) -> None:
        """A store to begin with, the one that every killed build must equal, and how long each change takes."""
        self._unharmed("build", lambda: self._build(self.folder / "reference.store"), self.folder)
        shutil.copytree(self.folder / "reference.store", self.store)
        for kind in KINDS[1:]:
            change = random_change(self.random, self.memory, kind)
            if kind == "repair":
                damage(self.store, self.random)
            self._unharmed(kind, lambda change=change: perform(self.store, change, self.model), self.store)
            self.memory.heed(change)
        finish_repair(self.store, self.model)

    def _unharmed(self, kind: str, work: Callable[[], object], watched: Path) -> None:
        fate = run_child(lambda report: work(), watched)
        if fate.error:
            raise SystemExit(f"{kind} fails by itself: {fate.error}")
        self.lengths[kind] = fate.seconds, fate.touches

    def _build(self, out: Path, *, resume: bool = False, force: bool = False) -> None:
        build(self.inputs, model=self.model, out=out, settings=BUILD, adaptation=ADAPTATION, resume=resume, force=force)

    def run(self, kills: int) -> None:
        """Kill so many."""
        while sum(self.kills.values()) < kills:
            kind = min(KINDS, key=lambda kind: (self.kills[kind], self.random.random()))
            if kind == "build":
                self._torture_build()
            else:
                self._torture_change(kind)

    def _kill(self, kind: str, work: Callable[[Callable[[object], None]], object], watched: Path) -> Fate:
        """A child that does some work, killed at a random time or touch if it is not done before."""
        seconds, touches = self.lengths[kind]
        if self.random.random() < 0.5:
            fate = run_child(work, watched, delay=self.random.uniform(0, 1.1 * seconds))
            way = "at a random time"
        else:
            fate = run_child(work, watched, touch=self.random.randint(1, touches + 1))
            way = "at a touch of the disk"
        if fate.error:
            raise SystemExit(f"{kind} failed, killed by nobody: {fate.error}")
        if fate.was_killed:
            self.ways[way] += 1
            self.places[fate.place] += 1
        return fate

    def _torture_change(self, kind: str) -> None:
        changes = [random_change(self.random, self.memory, kind)]
        foreseen = self.memory.copy()
        foreseen.heed(changes[0])
        for _ in range(_FOLLOWING):
            changes.append(random_change(self.random, foreseen, self.random.choice(["add", "correct", "remove"])))
            foreseen.heed(changes[-1])

        def work(report: Callable[[object], None]) -> None:
            for change in changes:
                perform(self.store, change, self.model)
                report(None)

        harmed = damage(self.store, self.random) if kind == "repair" else None
        fate = self._kill(kind, work, self.store)
        for change in changes[: fate.reported]:
            self.memory.heed(change)
        under_way = changes[fate.reported] if fate.was_killed else None
        if under_way is not None:
            self.kills[under_way.kind] += 1
        self._check(under_way, harmed)

    def _check(self, under_way: Change | None, harmed: str | None) -> None:
        allowed = [self.memory] if under_way is None else self.memory.on_the_way(under_way)
        then_settle = self.random.random() < 0.5  # else the next change meets what was left behind

        def look(report: Callable[[object], None]) -> None:
            if harmed is not None:
                finish_repair(self.store, self.model)
            report(check_store(self.store, self.model, allowed, self.random.randrange(1 << 30)))
            if then_settle:
                settle(self.store)

        fate = run_child(look, self.store)
        if fate.error:
            what = f"after {under_way} was killed, {harmed} damaged" if harmed else f"after {under_way} was killed"
            raise SystemExit(f"{what} ({fate.place}): {fate.error}\nsee {self.store}")
        self.memory = allowed[int(fate.answers[0])]

    def _torture_build(self) -> None:
        """Build with kills until it is through, sometimes in place of an older store."""
        out = self.folder / f"built-{self.builds}.store"
        self.builds += 1
        force = self.random.random() < 0.5
        if force:
            shutil.copytree(self.store, out)
        for attempt in range(4):
            is_last = attempt == 3
            work = lambda report: self._build(out, resume=True, force=force)  # noqa: E731
            fate = run_child(work, self.folder) if is_last else self._kill("build", work, self.folder)
            if fate.error:
                raise SystemExit(f"a build that goes on fails: {fate.error}\nsee {out}")
            if not fate.was_killed:
                left = {path.name for path in self.folder.iterdir() if out.name in path.name} - {out.name}
                if left:
                    raise SystemExit(f"{left} was left behind by a build that was done")
                break
            self.kills["build"] += 1
            problem = check_unfinished_build(out, self.built, self.memory if force else None)
            if problem:
                raise SystemExit(f"after a build was killed at {fate.place}: {problem}\nsee {out}")
            if out.exists() and not force:
                break  # killed when all was done
        difference = is_same_store(out, self.folder / "reference.store")
        if difference:
            raise SystemExit(f"a build that was killed gives another store: {difference}\nsee {out}")
        for path in self.folder.glob(f"*{out.name}*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def summary(self, seconds: float) -> str:
        def told(counts: Counter[str]) -> str:
            return ", ".join(f"{what} {count}" for what, count in counts.most_common())

        total = sum(self.kills.values())
        return (
            f"{total} kills in {seconds:.0f} s, nothing lost: {told(self.kills)}\n"
            f"killed {told(self.ways)}; last touched before: {told(self.places)}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", type=Path, help="a folder with a tiny model; else one is trained first")
    options = parser.parse_args()
    # Threads do not live through a fork.
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    editing._PAIRS_PER_COMMIT = PAIRS_A_COMMIT
    folder = Path(tempfile.mkdtemp(prefix="nearmt-torture-"))
    if options.model is None:
        toy.train_model(folder / "model")
    torture = Torture(folder, Seq2Seq.load(options.model or folder / "model", engine="torch"), options.seed)
    torture.prepare()
    began = time.monotonic()
    torture.run(options.kills)
    print(torture.summary(time.monotonic() - began))
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
