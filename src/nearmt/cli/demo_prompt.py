"""The prompt of `nearmt demo --try`: a sentence in, two translations and the reasons out."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nearmt.experiments.report import Change
    from nearmt.translator import Translator


def translate_typed(translator: "Translator") -> None:
    """Translate each line that the user types, without and with the memory, until an empty one."""
    import readline  # noqa: F401  (arrow keys and history in `input`)

    from nearmt.experiments.report import changed_words
    from nearmt.translator import Translator

    alone = Translator(translator.readers, model=translator.model, method="base")
    print(f"\nType a sentence ({translator.snapshot.manifest.languages}); an empty line ends.")
    while (sentence := _ask()).strip():
        found = translator.explain(sentence)
        (base,) = alone.translate([sentence])
        print(f"base      {base.text}\nadaptive  {found.text}")
        changes = changed_words(found, base.text)
        print_reasons(changes)
        if not changes:
            print("  The memory changed nothing.")


def _ask() -> str:
    try:
        return input("\n> ")
    except (EOFError, KeyboardInterrupt):
        print()
        return ""


def print_reasons(changes: Sequence["Change"]) -> None:
    """Print the segments of the memory behind the changed words."""
    from nearmt.experiments.report import reasons_for

    for reason in reasons_for(changes):
        print(f"  {reason.words}\n    from: {reason.segment_source} → {reason.segment_target}")
