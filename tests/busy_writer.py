"""Many small commits to a store while another process translates with it.

    PYTHONPATH=examples python tests/busy_writer.py --commits 2000 --pairs 20000

Each commit is one call that adds pairs. The other process translates all the time without errors, and at the end must
have seen the last commit. The script reports the times of the first and the last hundred commits: wall-clock time, and
processor time, which depends less on other load of the machine.
"""

import argparse
import multiprocessing
import shutil
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

import faiss
import torch
import toy

from nearmt.corpus import SentencePair
from nearmt.models import Seq2Seq
from nearmt.store import Store, build
from nearmt.translator import Translator
from torture_store import ADAPTATION, BUILD, write_memory

COMPARED = 100
_SOURCES = [source for source, _ in toy.sentences(4, 13)]


@dataclass(frozen=True)
class Outcome:
    """Wall-clock and processor seconds of every commit, and what the reader did meanwhile."""

    clock: list[float]
    processor: list[float]
    translated: int
    looks: int  # versions of the store that the reader saw
    saw_the_last: bool

    def ratio(self, seconds: list[float]) -> float:
        compared = min(COMPARED, len(seconds) // 2)
        return sum(seconds[-compared:]) / sum(seconds[:compared])

    def __str__(self) -> str:
        lines = [f"{len(self.clock)} commits; {self.translated} sentences translated, {self.looks} versions seen"]
        for name, seconds in (("clock", self.clock), ("processor", self.processor)):
            compared = min(COMPARED, len(seconds) // 2)
            first, last = sum(seconds[:compared]), sum(seconds[-compared:])
            lines.append(
                f"{name}: the first {compared} commits {first:.2f} s, the last {compared} {last:.2f} s: "
                f"×{self.ratio(seconds):.2f}"
            )
        medians = [median(self.clock[start : start + COMPARED]) for start in range(0, len(self.clock), COMPARED)]
        lines.append("milliseconds of a commit, by hundreds: " + " ".join(f"{1000 * one:.0f}" for one in medians))
        return "\n".join(lines)


def _read(folder: Path, model: Seq2Seq, answer: Connection) -> None:
    """Translate until told to stop, then report what was done, or the error."""
    try:
        translator = Translator(folder, model=model)
        translated, versions = 0, [translator.snapshot.manifest.version]
        is_last = False
        while not is_last:
            is_last = answer.poll()
            translated += len(translator.translate(_SOURCES))
            version = translator.snapshot.manifest.version
            if version != versions[-1]:
                versions.append(version)
        answer.send((translated, versions, None))
    except BaseException:
        answer.send((0, [], traceback.format_exc()))


def add_while_reading(folder: Path, model: Seq2Seq, commits: int, pairs: int) -> Outcome:
    """Build a store in `folder` and add pairs while another process translates."""
    store = build(write_memory(folder), model=model, out=folder / "busy.store", settings=BUILD, adaptation=ADAPTATION)
    given = [
        SentencePair(source, target, str(number), "busy")
        for number, (source, target) in enumerate(toy.sentences(pairs, 17, toy.CLIENT))
    ]
    here, there = multiprocessing.Pipe()
    reader = multiprocessing.get_context("fork").Process(target=_read, args=(store.folder, model, there))
    reader.start()
    writer = Store(store.folder, model=model)
    clock, processor = [], []
    for batch in batched(given, -(-pairs // commits)):
        began, began_processor = time.perf_counter(), time.process_time()
        writer.add(batch)
        clock.append(time.perf_counter() - began)
        processor.append(time.process_time() - began_processor)
    here.send(None)
    translated, versions, error = here.recv()
    reader.join()
    if error:
        raise SystemExit(f"the reader failed: {error}")
    assert writer.info()["units"] == 120 + pairs
    assert writer.verify().is_sound
    return Outcome(clock, processor, translated, len(versions), versions[-1] == writer.manifest.version)


def batched(pairs: list[SentencePair], size: int) -> Iterator[list[SentencePair]]:
    return (pairs[start : start + size] for start in range(0, len(pairs), size))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--commits", type=int, default=2000)
    parser.add_argument("--pairs", type=int, default=20_000)
    parser.add_argument("--model", type=Path, help="a folder with a tiny model; by default one is trained")
    options = parser.parse_args()
    # Threads do not survive a fork.
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="nearmt-busy-"))
    if options.model is None:
        toy.train_model(folder / "model")
    model = Seq2Seq.load(options.model or folder / "model", engine="torch")
    outcome = add_while_reading(folder, model, options.commits, options.pairs)
    print(outcome)
    shutil.rmtree(folder)
    if not outcome.saw_the_last:
        raise SystemExit("the reader did not see the last commit")


if __name__ == "__main__":
    main()
