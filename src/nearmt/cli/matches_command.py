"""`nearmt matches`: the segments of the memory that are most similar to a text."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from nearmt.cli.options import AsJson, RetrievalOptions, StorePath, output_option
from nearmt.cli.output import print_json, say
from nearmt.errors import SettingError

if TYPE_CHECKING:
    from nearmt.retrieval.sentences.matches import Match


def matches(
    store: StorePath,
    texts: Annotated[list[str], typer.Argument(metavar="TEXT…", help="Sentences to look up.")],
    *,
    retrieval: RetrievalOptions,
    limit: Annotated[int, output_option("--limit", min=1, help="Matches to show for each sentence.")] = 5,
    minimum: Annotated[
        int, output_option("--minimum", min=1, max=100, help="Lowest similarity to show, in percent.")
    ] = 50,
    as_json: AsJson = False,
) -> None:
    """Show the segments of the memory that are most similar to a sentence, as a CAT tool does.

    No model is loaded. The similarity is the edit distance over words; 100 % means that the texts are the same.
    """
    from nearmt.datastore import open_finished
    from nearmt.retrieval.sentences.matches import MatchFinder, best_of_stores

    if not all(text.strip() for text in texts):
        raise SettingError("there is no sentence to look up: the text is empty")
    wanted = retrieval.filter()
    finders = [MatchFinder(open_finished(folder)).filtered(wanted) for folder in (store, *(retrieval.also or []))]
    found = [best_of_stores(finders, text, limit, minimum) for text in texts]
    if not wanted.is_empty and not any((finder.newest >= 0).any() for finder in finders):
        say("Warning: no unit of the memory matches the filter.")
    if as_json:
        print_json(
            [
                {"text": text, "matches": [asdict(match) for match in of_text]}
                for text, of_text in zip(texts, found, strict=True)
            ]
        )
        return
    for number, (text, of_text) in enumerate(zip(texts, found, strict=True)):
        if len(texts) > 1:
            print(f"{text}\n" if number == 0 else f"\n{text}\n")
        _print_matches(of_text, minimum)


def _print_matches(found: "list[Match]", minimum: int) -> None:
    if not found:
        print(f"no match of {minimum} % or more")
    for match in found:
        where = " ".join(part for part in (match.origin, match.unit_id) if part)
        print(f"{match.percent:3} %  {match.source} → {match.target}  [{where}]")
