"""The outputs of an evaluation in a folder, one text file for each system, to be scored by other tools and read again.

Every file has one sentence per line, in the order of `source.txt` and `reference.txt`.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nearmt.corpus import SentencePair, normalise_space
from nearmt.datastore import Manifest
from nearmt.errors import SettingError
from nearmt.evaluation.evaluate import Evaluation
from nearmt.outputs import writing_text

SOURCE, REFERENCE = "source", "reference"
_RESULT = "evaluation.json"


def write_systems(
    folder: Path, outputs: Mapping[str, Sequence[str]], pairs: Sequence[SentencePair], *, overwrite: bool = False
) -> None:
    """Write sources, references and the translations of each system, one sentence per line."""
    folder.mkdir(parents=True, exist_ok=True)
    sides = {SOURCE: [pair.source for pair in pairs], REFERENCE: [pair.target for pair in pairs]}
    for name, lines in {**sides, **outputs}.items():
        with writing_text(folder / f"{name}.txt", overwrite=overwrite) as out:
            out.writelines(f"{normalise_space(line)}\n" for line in lines)


def write_evaluation(
    folder: Path, result: Evaluation, manifest: Manifest, test: Sequence[SentencePair], *, overwrite: bool = False
) -> None:
    """Write everything that `read_evaluation` needs to show the result again."""
    write_systems(folder, result.outputs, result.pairs, overwrite=overwrite)
    content = {"made_from": _made_from(manifest, test), "result": result.as_dict()}
    with writing_text(folder / _RESULT, overwrite=overwrite) as out:
        out.write(json.dumps(content, ensure_ascii=False, indent=1))


def read_evaluation(folder: Path, manifest: Manifest, test: Sequence[SentencePair]) -> Evaluation:
    """Return an earlier result of this store and test set."""
    try:
        content = json.loads((folder / _RESULT).read_text(encoding="utf-8"))
        made_from = content["made_from"]
        outputs = {
            name: (folder / f"{name}.txt").read_text(encoding="utf-8").split("\n")[:-1]
            for name in content["result"]["settings"]
        }
        result = Evaluation.from_dict(content["result"], outputs, _pairs(folder))
    except OSError as error:
        raise SettingError(f"{folder} has no outputs of an earlier run: {error.filename} cannot be read") from error
    except (ValueError, KeyError, TypeError) as error:
        raise SettingError(f"{folder / _RESULT} is damaged: {error}") from error
    wanted = _made_from(manifest, test)
    if made_from["test"] != wanted["test"]:
        raise SettingError(f"{folder} has the outputs for another test set")
    if made_from["store"] != wanted["store"]:
        raise SettingError(f"{folder} has the outputs of another store, or this store has changed since")
    return result


def _pairs(folder: Path) -> list[SentencePair]:
    sides = [(folder / f"{name}.txt").read_text(encoding="utf-8").split("\n")[:-1] for name in (SOURCE, REFERENCE)]
    return [SentencePair(*pair) for pair in zip(*sides, strict=True)]


def _made_from(manifest: Manifest, test: Sequence[SentencePair]) -> dict[str, Any]:
    texts = json.dumps([[pair.source, pair.target] for pair in test]).encode()
    return {"store": [manifest.created_at, manifest.version], "test": hashlib.sha256(texts).hexdigest()}
