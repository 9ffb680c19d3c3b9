"""What `nearmt verify` found and what a repair did, for people."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nearmt.cli.output import say

if TYPE_CHECKING:
    from nearmt.building.repair import Repaired
    from nearmt.datastore import Lost, QuarantinedFiles, Report

_SHOWN_CHARACTERS = 100


def print_report(report: "Report", store: Path) -> None:
    """What is wrong with a store, and what can be done."""
    for problem in report.problems:
        say(f"nearmt: {store}: {problem}")
    if report.problems:
        say(
            f"nearmt verify {store} --repair keeps all that can be read, computes lost states again with the model, "
            "and deletes nothing"
        )
    elif report.waiting_sentences:
        say(f"nearmt: {store}: {waiting_text(report.waiting_sentences, store)}")
    else:
        print(f"{store} is sound: {report.num_sentences} sentences, {report.num_entries} entries")
    for kept in report.set_aside:
        say(set_aside_text(kept))


def print_repaired(done: "Repaired", store: Path) -> None:
    """What a repair kept, computed and lost."""
    for problem in done.problems:
        say(f"nearmt: {store}: {problem}")
    if not done.problems and not done.recomputed_sentences and not done.waiting_sentences:
        print(f"{store} is sound: there was nothing to repair")
        return
    computed = f", {done.recomputed_sentences:,} of them computed again with the model"
    print(
        f"{done.kept_sentences:,} sentences kept{computed if done.recomputed_sentences else ''}; "
        f"{done.lost_sentences or 'none'} lost"
    )
    if done.waiting_sentences:
        say(waiting_text(done.waiting_sentences, store) + (f" ({done.no_model})" if done.no_model else ""))
    if done.unchecked_sentences:
        say(f"{done.unchecked_sentences:,} sentences are kept as they are: the checksums of their states are lost")
    if done.unchecked_texts:
        say(f"{done.unchecked_texts:,} sentences are kept as they stand in a damaged file: look through them")
    if done.lost_units:
        say(f"{done.lost_units:,} further origins of sentences are lost")
    if done.incomplete_units:
        say(f"{done.incomplete_units:,} units are kept without their id, origin or date")
    _say_lost(done.lost, done.lost_sentences + done.lost_units)
    if done.lost_removals:
        say(f"{done.lost_removals:,} removals could not be read: what they took away may be back, so remove it again")
    if done.lost_networks:
        say(f"What was trained is lost ({', '.join(done.lost_networks)}): run nearmt train {store}")
    if done.damaged_files:
        say(f"The damaged files are kept in {done.damaged_files}: delete it when you do not need it any more")


def waiting_text(number: int, store: object) -> str:
    """Sentences that are not searched."""
    return (
        f"{number:,} sentences wait for their states and are left out of search until "
        f"nearmt verify {store} --repair can load the model"
    )


def set_aside_text(kept: "QuarantinedFiles") -> str:
    """Damaged files of an earlier repair."""
    return (
        f"Damaged files of an earlier repair are kept in {kept.folder} ({kept.bytes / 1e6:,.1f} MB): "
        "delete it when you do not need it any more"
    )


def _say_lost(lost: "Sequence[Lost]", total: int) -> None:
    for one in lost:
        named = " ".join(part for part in (one.origin, one.unit_id) if part) or "of no known origin"
        source = f": {_printable(one.source)}" if one.source else ""
        say(f"  lost: {named}{source}")
    if total > len(lost):
        say(f"  and {total - len(lost):,} more")


def _printable(text: str) -> str:
    """The beginning of a text that may be damaged: no control character reaches the terminal."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text[:_SHOWN_CHARACTERS])
