"""Building the files of the sentence index in bounded memory, however many sentences a store has.

The n-grams are sorted in runs, which wait in a file beside the index, and then merged.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from nearmt.datastore import SentenceIndexRecord, Snapshot, sha256_of
from nearmt.progress import Progress, silent
from nearmt.retrieval.arrays import ArrayFile
from nearmt.retrieval.sentences.segments import first_of_each, read_terms, sorted_pairs

_ARRAYS = {"terms": "<u4", "starts": "<i8", "ngrams": "<u4", "begins": "<i8", "postings": "<u4"}
_RUN = 4_000_000  # n-grams that are sorted in memory, of 8 bytes each


def build_sentence_index(snapshot: Snapshot, name: str, progress: Progress = silent) -> SentenceIndexRecord:
    """Index all sentences of a snapshot in files whose names begin with `name`."""
    runs_path = snapshot.folder / f"{name}-runs.tmp"
    paths = {array: snapshot.folder / f"{name}-{array}.npy" for array in _ARRAYS}
    files = {array: ArrayFile(path, _ARRAYS[array]) for array, path in paths.items()}
    try:
        with files["terms"] as terms, files["starts"] as starts:
            lengths = _sort_in_runs(snapshot, terms, starts, runs_path, progress)
        with files["ngrams"] as ngrams, files["begins"] as begins, files["postings"] as postings:
            _write_postings(_runs_of(runs_path, lengths), ngrams, begins, postings, progress)
    finally:
        runs_path.unlink(missing_ok=True)
    checksums = {path.name: sha256_of(path) for path in paths.values()}
    return SentenceIndexRecord(len(snapshot.sentences), checksums, sum(path.stat().st_size for path in paths.values()))


def _sort_in_runs(
    snapshot: Snapshot, terms: ArrayFile, starts: ArrayFile, runs_path: Path, progress: Progress
) -> list[int]:
    """Write the terms of all sentences, and their sorted n-grams to a file, run by run; return the runs' lengths."""
    total, end, num_terms = len(snapshot.sentences), 0, 0
    lengths, waiting, num_waiting = [], [], 0
    starts.append(np.zeros(1, np.int64))
    with runs_path.open("wb") as out:
        while end < total:
            own_terms, own_starts = read_terms(snapshot, end, total)
            terms.append(own_terms)
            starts.append(own_starts[1:] + num_terms)
            waiting.append(sorted_pairs(own_terms, own_starts) + np.uint64(end))
            num_waiting += len(waiting[-1])
            end, num_terms = end + len(own_starts) - 1, num_terms + len(own_terms)
            if num_waiting >= _RUN or end == total:
                run = np.concatenate(waiting)
                run.sort()
                out.write(run.data)
                lengths.append(len(run))
                waiting, num_waiting = [], 0
            progress("indexing", end, total)
    return lengths


def _runs_of(path: Path, lengths: Sequence[int]) -> list[np.ndarray]:
    """Map the runs of a file, one after the other."""
    if not sum(lengths):
        return []
    return np.split(np.memmap(path, np.uint64, "r"), np.cumsum(lengths)[:-1])


def merged(runs: Sequence[np.ndarray], size: int) -> Iterator[np.ndarray]:
    """Merge sorted arrays without a common element: pieces of at most about `size` elements, in ascending order."""
    runs = [run for run in runs if len(run)]
    while runs:
        share = max(1, size // len(runs))
        # All that is less than the least of these borders is among the first `share` elements of its run.
        border = min((run[share] for run in runs if len(run) > share), default=None)
        cuts = [len(run) if border is None else int(np.searchsorted(run[: share + 1], border)) for run in runs]
        piece = np.concatenate([run[:cut] for run, cut in zip(runs, cuts, strict=True)])
        piece.sort()
        yield piece
        runs = [run[cut:] for run, cut in zip(runs, cuts, strict=True) if cut < len(run)]


def _write_postings(
    runs: Sequence[np.ndarray], ngrams: ArrayFile, begins: ArrayFile, postings: ArrayFile, progress: Progress
) -> None:
    total, done, last = sum(map(len, runs)), 0, None
    for pairs in merged(runs, _RUN):
        hashes, places = first_of_each(pairs)
        is_known = int(hashes[0] == last)  # it began in the piece before
        ngrams.append(hashes[is_known:])
        begins.append(places[is_known:] + done)
        postings.append(pairs.astype(np.uint32))
        last, done = hashes[-1], done + len(pairs)
        progress("sorting", done, total)
    begins.append(np.array([total]))
