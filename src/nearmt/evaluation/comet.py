"""Reads COMET scores that comet-score computed elsewhere. nearmt itself needs no COMET model."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from nearmt.errors import CorpusError


def read_comet(path: Path, outputs: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """The mean score of each system in a JSON file of comet-score.

    The file has one list for each file of translations, named like the system (`base.txt`), with an object for each
    sentence. Its scores must be those of these outputs.
    """
    scores: dict[str, float] = {}
    for file, sentences in _load(path).items():
        name = Path(file).stem
        if name not in outputs:
            raise CorpusError(f"{path} scores {file}, but the systems are {', '.join(outputs)}")
        if name in scores:
            raise CorpusError(f"{path} scores two files that are named {name}")
        scores[name] = fmean(_scores(path, file, sentences, outputs[name]))
    return scores


def _load(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from error
    except ValueError as error:
        raise CorpusError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict) or not content:
        raise CorpusError(f"{path} is not a result of comet-score: it must be an object with a list for each system")
    return content


def _scores(path: Path, file: str, sentences: Any, outputs: Sequence[str]) -> list[float]:
    if not isinstance(sentences, list) or not all(isinstance(sentence, dict) for sentence in sentences):
        raise CorpusError(f"{path} is not a result of comet-score: {file} must be a list with an object per sentence")
    if len(sentences) != len(outputs):
        raise CorpusError(f"{path} has {len(sentences)} scores for {file}, but the test set has {len(outputs)}")
    scores = []
    for number, (sentence, output) in enumerate(zip(sentences, outputs, strict=True), 1):
        score = sentence.get("COMET")
        if not isinstance(score, int | float) or isinstance(score, bool):
            raise CorpusError(f"{path} is not a result of comet-score: sentence {number} of {file} has no COMET score")
        if str(sentence.get("mt", output)).split() != output.split():
            raise CorpusError(f"{path} scores another translation of sentence {number} than {file} has now")
        scores.append(float(score))
    return scores
