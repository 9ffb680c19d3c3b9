"""Which translations count as confirmed: the one policy for building from files and for filling them.

Most tools state a status only where they have something to say, so a unit can be confirmed, unconfirmed or neither.
Building takes every translation that is not unconfirmed. Filling never touches a unit that is confirmed, even an
empty one. A unit that states both, such as approved="yes" with state="new", is neither built from nor filled.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

Attributes = Callable[[str], str | None]  # an attribute by its local name, in any namespace

_TRADOS_DRAFTS = frozenset({"draft", "unspecified", "rejectedtranslation", "rejectedsignoff"})
_MEMOQ_CONFIRMED = frozenset({"manuallyconfirmed", "proofread"})
_MEMOQ_DRAFTS = frozenset(
    {
        "notstarted",
        "partiallyedited",
        "pretranslated",
        "machinetranslated",
        "assembledfromfragments",
        "autojoined",
        "autosplit",
        "autosplitandempty",
        "rejected",
    }
)
_SUGGESTIONS = ("mt-suggestion", "leveraged-mt", "fuzzy-match")


@dataclass(frozen=True, slots=True)
class Status:
    """What a file states about a translation; both are false if it states nothing."""

    is_confirmed: bool = False
    is_unconfirmed: bool = False


def xliff_1_status(unit: Attributes, target: Attributes) -> Status:
    """The status of an XLIFF 1.2 unit and its target, with the attributes of Phrase (`confirmed`) and memoQ (`status`).

    A suggestion by a machine or from a fuzzy match stays unconfirmed until somebody approves it.
    """
    state, memoq = target("state") or "", (unit("status") or "").lower()
    approved, phrase = unit("approved"), unit("confirmed")
    is_approved = approved == "yes" or state in ("final", "signed-off")
    is_suggestion = target("state-qualifier") in _SUGGESTIONS and not is_approved
    is_pending = state == "new" or state.startswith("needs-")
    return Status(
        is_confirmed=is_approved or phrase == "1" or memoq in _MEMOQ_CONFIRMED,
        is_unconfirmed=(is_pending or is_suggestion or approved == "no" or phrase == "0" or memoq in _MEMOQ_DRAFTS),
    )


def xliff_2_status(state: str | None) -> Status:
    """The status of an XLIFF 2 segment.

    The standard's default is `initial`, but many tools never write a state, so a missing one states nothing.
    """
    return Status(is_confirmed=state in ("translated", "reviewed", "final"), is_unconfirmed=state == "initial")


def trados_status(level: str) -> Status:
    """The status for a confirmation level of Trados: `conf` in SDLXLIFF, the x-ConfirmationLevel property in TMX."""
    is_draft = level.lower() in _TRADOS_DRAFTS
    return Status(is_confirmed=not is_draft, is_unconfirmed=is_draft)


def trados_segment_status(segment: Attributes) -> Status:
    """The status of a segment in <sdl:seg-defs>. Trados writes no `conf` for a segment that nobody has touched."""
    return trados_status(segment("conf") or "unspecified")


def is_untranslatable(translate: Iterable[str | None]) -> bool:
    """True if a unit must not be translated, from the `translate` attributes of the unit and of all around it.

    The values come from the inside out, and the first one that is given decides.
    """
    return next((value for value in translate if value is not None), None) == "no"


def is_locked(locked: str | None) -> bool:
    """True if the `locked` attribute of Trados, Phrase or memoQ forbids changes.

    Only filling asks: a locked translation is usually an approved one, and building uses it.
    """
    return locked in ("true", "locked", "yes")
