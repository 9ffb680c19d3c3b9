"""Kill the writers of a store at random moments and check that nothing is lost.

    PYTHONPATH=examples python tests/torture.py --kills 300

A process that has loaded a tiny model forks one child after another. Each child changes a store (build, add, correct,
remove, compact, index, train, or repair after a byte was flipped), reports finished changes over a pipe, and is
killed with SIGKILL: half of the time after a random delay, half of the time at a random access to the disk. Then
another child checks the store: it opens, its checksums match, it contains all reported changes and at most some
commits of the interrupted one, searching and translating work, and the next change deletes all leftovers. An
interrupted repair is repeated, and the damaged files must still be there.
"""

import argparse
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import faiss
import torch
import toy

from nearmt.building import editing
from nearmt.models import Seq2Seq
from nearmt.store import build
from torture_children import Fate, run_child
from torture_memory import PAIRS_PER_COMMIT, Change, Memory, random_change
from torture_store import (
    ADAPTATION,
    BUILD,
    check_store,
    check_unfinished_build,
    damage,
    difference_between,
    perform,
    repair_again,
    settle,
    write_memory,
)

KINDS = ("build", "add", "correct", "remove", "compact", "index", "train", "repair")
_FOLLOWING = 2  # changes after the one to be killed, so that a late kill interrupts something too


class Torture:
    """One store whose writers are killed, and builds that are killed."""

    def __init__(self, folder: Path, model: Seq2Seq, seed: int) -> None:
        self.folder, self.model, self.random = folder, model, random.Random(seed)
        self.inputs = write_memory(folder)
        self.built = Memory.of(self.inputs)
        self.store, self.memory = folder / "living.store", self.built.copy()
        self.kills: Counter[str] = Counter()
        self.ways: Counter[str] = Counter()
        self.places: Counter[str] = Counter()
        self.lengths: dict[str, tuple[float, int]] = {}  # kind of change → seconds and disk accesses
        self.builds = 0

    def prepare(self) -> None:
        """Make the first store and the reference for killed builds, and measure how long each change takes."""
        self._measure("build", lambda: self._build(self.folder / "reference.store"), self.folder)
        shutil.copytree(self.folder / "reference.store", self.store)
        for kind in KINDS[1:]:
            change = random_change(self.random, self.memory, kind)
            if kind == "repair":
                damage(self.store, self.random)
            self._measure(kind, partial(perform, self.store, change, self.model), self.store)
            self.memory.apply(change)
        repair_again(self.store, self.model)

    def _measure(self, kind: str, work: Callable[[], object], watched: Path) -> None:
        fate = run_child(lambda report: work(), watched)
        if fate.error:
            raise SystemExit(f"{kind} fails without being killed: {fate.error}")
        self.lengths[kind] = fate.seconds, fate.accesses

    def _build(self, out: Path, *, resume: bool = False, force: bool = False) -> None:
        build(self.inputs, model=self.model, out=out, settings=BUILD, adaptation=ADAPTATION, resume=resume, force=force)

    def run(self, kills: int) -> None:
        """Kill this many children."""
        while sum(self.kills.values()) < kills:
            kind = min(KINDS, key=lambda kind: (self.kills[kind], self.random.random()))
            if kind == "build":
                self._torture_build()
            else:
                self._torture_change(kind)

    def _kill(self, kind: str, work: Callable[[Callable[[object], None]], object], watched: Path) -> Fate:
        """Run some work in a child and kill it at a random time or disk access, unless it finishes before."""
        seconds, accesses = self.lengths[kind]
        if self.random.random() < 0.5:
            fate = run_child(work, watched, delay=self.random.uniform(0, 1.1 * seconds))
            way = "at a random time"
        else:
            fate = run_child(work, watched, access=self.random.randint(1, accesses + 1))
            way = "at a disk access"
        if fate.error:
            raise SystemExit(f"{kind} failed by itself: {fate.error}")
        if fate.was_killed:
            self.ways[way] += 1
            self.places[fate.place] += 1
        return fate

    def _torture_change(self, kind: str) -> None:
        changes = [random_change(self.random, self.memory, kind)]
        expected = self.memory.copy()
        expected.apply(changes[0])
        for _ in range(_FOLLOWING):
            changes.append(random_change(self.random, expected, self.random.choice(["add", "correct", "remove"])))
            expected.apply(changes[-1])

        def work(report: Callable[[object], None]) -> None:
            for change in changes:
                perform(self.store, change, self.model)
                report(None)

        damaged = damage(self.store, self.random) if kind == "repair" else None
        fate = self._kill(kind, work, self.store)
        for change in changes[: fate.reported]:
            self.memory.apply(change)
        interrupted = changes[fate.reported] if fate.was_killed else None
        if interrupted is not None:
            self.kills[interrupted.kind] += 1
        self._check(interrupted, damaged)

    def _check(self, interrupted: Change | None, damaged: str | None) -> None:
        allowed = [self.memory] if interrupted is None else self.memory.states_during(interrupted)
        settles = self.random.random() < 0.5  # otherwise the next change finds the leftovers

        def check(report: Callable[[object], None]) -> None:
            if damaged is not None:
                repair_again(self.store, self.model)
            report(check_store(self.store, self.model, allowed, self.random.randrange(1 << 30)))
            if settles:
                settle(self.store)

        fate = run_child(check, self.store)
        if fate.error:
            what = (
                f"after {interrupted} was killed, {damaged} damaged" if damaged else f"after {interrupted} was killed"
            )
            raise SystemExit(f"{what} ({fate.place}): {fate.error}\nsee {self.store}")
        self.memory = allowed[int(fate.answers[0])]

    def _torture_build(self) -> None:
        """Kill and resume a build until it is finished, sometimes replacing an older store."""
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
                raise SystemExit(f"a resumed build fails: {fate.error}\nsee {out}")
            if not fate.was_killed:
                left = {path.name for path in self.folder.iterdir() if out.name in path.name} - {out.name}
                if left:
                    raise SystemExit(f"a finished build left {left}")
                break
            self.kills["build"] += 1
            problem = check_unfinished_build(out, self.built, self.memory if force else None)
            if problem:
                raise SystemExit(f"after a build was killed at {fate.place}: {problem}\nsee {out}")
            if out.exists() and not force:
                break  # killed after it was finished
        difference = difference_between(out, self.folder / "reference.store")
        if difference:
            raise SystemExit(f"a killed and resumed build differs from the reference: {difference}\nsee {out}")
        for path in self.folder.glob(f"*{out.name}*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def summary(self, seconds: float) -> str:
        def described(counts: Counter[str]) -> str:
            return ", ".join(f"{what} {count}" for what, count in counts.most_common())

        total = sum(self.kills.values())
        return (
            f"{total} kills in {seconds:.0f} s, nothing lost: {described(self.kills)}\n"
            f"killed {described(self.ways)}; last accessed: {described(self.places)}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", type=Path, help="a folder with a tiny model; by default one is trained")
    options = parser.parse_args()
    # Threads do not survive a fork.
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    editing._PAIRS_PER_COMMIT = PAIRS_PER_COMMIT
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
