"""The results of `nearmt verify` and of a repair as text."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nearmt.cli.output import command_for, number_of, say, size_text

if TYPE_CHECKING:
    from nearmt.building.repair import Repaired
    from nearmt.datastore import Lost, QuarantinedFiles, Report

_SHOWN_CHARACTERS = 100


def print_report(report: "Report", store: Path) -> None:
    """Print what is wrong with a store, and what to do about it."""
    for problem in report.problems:
        say(f"nearmt: {store}: {problem}")
    if report.problems:
        say(
            f"{command_for('verify', store, '--repair')} keeps everything that can be read, recomputes lost states "
            "with the model, and deletes nothing"
        )
    elif report.waiting_sentences:
        say(f"nearmt: {store}: {waiting_text(report.waiting_sentences, store)}")
    else:
        sentences, entries = (
            number_of(report.num_sentences, "sentence"),
            number_of(report.num_entries, "entry", "entries"),
        )
        print(f"{store} is intact: {sentences}, {entries}")
    for kept in report.set_aside:
        say(set_aside_text(kept))


def print_repaired(done: "Repaired", store: Path) -> None:
    """Print what a repair kept, recomputed and lost."""
    for problem in done.problems:
        say(f"nearmt: {store}: {problem}")
    if not done.problems and not done.recomputed_sentences and not done.waiting_sentences:
        print(f"{store} is intact: there was nothing to repair")
        return
    recomputed = f", {done.recomputed_sentences:,} of them recomputed with the model"
    print(
        f"{number_of(done.kept_sentences, 'sentence')} kept{recomputed if done.recomputed_sentences else ''}; "
        f"{done.lost_sentences or 'none'} lost"
    )
    if done.waiting_sentences:
        say(waiting_text(done.waiting_sentences, store) + (f" ({done.no_model})" if done.no_model else ""))
    _say_doubtful(done)
    _say_lost(done.lost, done.lost_sentences + done.lost_units)
    if done.lost_removals:
        removals = number_of(done.lost_removals, "removal")
        say(f"{removals} could not be read: units removed earlier may be back, so remove them again")
    if done.lost_networks:
        say(f"Trained networks are lost ({', '.join(done.lost_networks)}): run {command_for('train', store)}")
    if done.damaged_files:
        say(f"The damaged files are kept in {done.damaged_files}: delete it when you no longer need it")


def _say_doubtful(done: "Repaired") -> None:
    for count, noun, what in (
        (done.unchecked_sentences, "sentence", "kept without a check: the checksums of the states are lost"),
        (done.unchecked_texts, "sentence", "kept from a damaged file: check the text"),
        (done.lost_units, "further origin", "of kept sentences lost"),
        (done.incomplete_units, "unit", "kept without id, origin or date"),
    ):
        if count:
            say(f"{number_of(count, noun)} {what}")


def waiting_text(number: int, store: object) -> str:
    """Describe sentences that are not searched."""
    lacking = "sentence has no states and is" if number == 1 else "sentences have no states and are"
    return f"{number:,} {lacking} not searched until {command_for('verify', store, '--repair')} can load the model"


def set_aside_text(kept: "QuarantinedFiles") -> str:
    """Describe damaged files of an earlier repair."""
    return (
        f"Damaged files of an earlier repair are kept in {kept.folder} ({size_text(kept.bytes)}): "
        "delete it when you no longer need it"
    )


def _say_lost(lost: "Sequence[Lost]", total: int) -> None:
    for one in lost:
        named = " ".join(part for part in (one.origin, one.unit_id) if part) or "unknown origin"
        source = f": {_printable(one.source)}" if one.source else ""
        say(f"  lost: {named}{source}")
    if total > len(lost):
        say(f"  and {total - len(lost):,} more")


def _printable(text: str) -> str:
    """Return the beginning of a text that may be damaged, without control characters."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text[:_SHOWN_CHARACTERS])
