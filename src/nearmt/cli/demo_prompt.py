"""The prompt of `nearmt demo --try`: a sentence in, two translations and the reasons out."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nearmt.experiments.report import Change
    from nearmt.translator import Translator

EXAMPLE = "La procuration est valable pour cette assemblée."


def translate_typed(translator: "Translator") -> None:
    """Translate each line that the user types, without and with the memory, until an empty one."""
    import readline  # noqa: F401  (arrow keys and history in `input`)

    from nearmt.experiments.report import changed_words
    from nearmt.markup import split_text
    from nearmt.translator import Translator

    alone = Translator(translator.readers, model=translator.model, method="base")
    languages = translator.snapshot.manifest.languages
    print(f"\nType a sentence ({languages}), such as “{EXAMPLE}”; an empty line ends.")
    while typed := _ask().strip():
        sentences = list(split_text(typed, languages.source or "en").sentences)
        with_memory, without = translator.translate(sentences), alone.translate(sentences)
        print(f"base      {' '.join(found.text for found in without)}")
        print(f"adaptive  {' '.join(found.text for found in with_memory)}")
        changes = [
            change
            for found, base in zip(with_memory, without, strict=True)
            for change in changed_words(found, base.text)
        ]
        print_reasons(changes)
        if not changes:
            is_same = all(found.text == base.text for found, base in zip(with_memory, without, strict=True))
            print("  The memory changed nothing." if is_same else "  The memory only moved or removed words.")


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
