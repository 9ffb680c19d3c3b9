"""Make the golden store: a tiny model, a store with additions, corrections and removals, and its translations.

    PYTHONPATH=examples python tests/golden/make.py FOLDER

This script made the folders `model` and `store` and the file `expected.json` beside it once, with store format 2.
Every later version must open them and give the same results. No test runs this script. It writes into a new FOLDER, so
that nothing here is replaced by accident. A new format gets a golden store of its own.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
import toy

from nearmt.building.builder import BuildSettings
from nearmt.corpus import SentencePair
from nearmt.models import Seq2Seq
from nearmt.store import Store, build
from nearmt.training.schedule import TrainingSettings
from nearmt.training.train_store import AdaptationSettings
from nearmt.translator import Translation, Translator

NAME = "nearmt-golden"  # of the model, independent of its folder
_SENTENCES = toy.sentences(260, 7, toy.CLIENT)
_SETTINGS = BuildSettings(segment_entries=300, index="IVF4,PQ16x4fs", num_probes=4, max_k=8)
_ADAPTATION = AdaptationSettings(max_k=8, max_decoded=20, training=TrainingSettings(steps=600, first_check=100))


def load_golden_model(folder: Path) -> Seq2Seq:
    return Seq2Seq.load(folder, engine="torch", offline=True)


def pairs(first: int, last: int, origin: str, date: str) -> list[SentencePair]:
    """Some sentences of the client as units of an origin."""
    return [
        SentencePair(source, target, f"{origin}-{number}", origin, date)
        for number, (source, target) in enumerate(_SENTENCES[first:last], first)
    ]


def make_store(folder: Path, model: Seq2Seq) -> Store:
    """Build, add, remove, compact and train, then add, correct and remove again without compacting."""
    memory = folder / "memory.jsonl"
    memory.write_text("".join(json.dumps(asdict(pair)) + "\n" for pair in pairs(0, 90, "manual", "2024-05-01")))
    store = build(memory, model=model, out=folder / "store", settings=_SETTINGS, train=False)
    memory.unlink()
    for first, origin, date in ((90, "website", "2024-06-01"), (100, "letters", "2024-07-01")):
        store.add(pairs(first, first + 10, origin, date), model=model)
    store.remove(unit_id="manual-3")
    store.compact()
    store.train(_SENTENCES[160:260], model=model, settings=_ADAPTATION)
    store.add([replace(pair, origin="second place") for pair in pairs(20, 24, "manual", "2024-08-01")])  # duplicates
    store.add([replace(pair, target=f"now {pair.target}") for pair in pairs(90, 92, "website", "2024-08-02")])
    store.add(pairs(110, 120, "letters", "2024-08-03"))
    store.remove(unit_id="manual-5")
    store.remove(origin="second place")
    store.remove(source=_SENTENCES[112][0])
    for name in ("lock", "compaction-lock"):
        (store.folder / name).unlink()
    return store


def described(translation: Translation) -> dict[str, Any]:
    """A translation with its evidence, for comparison."""
    return {
        "source": translation.source,
        "text": translation.text,
        "score": round(translation.score, 5),
        "tokens": [
            {
                "token": token.token,
                "probability": round(token.probability, 5),
                "nmt_share": round(token.nmt_share, 5),
                "neighbors": [
                    {
                        "token": neighbor.token,
                        "squared_distance": round(neighbor.squared_distance, 4),
                        "unit_id": neighbor.segment.unit_id,
                        "origin": neighbor.segment.origin,
                        "position": neighbor.position,
                    }
                    for neighbor in token.neighbors[:3]
                ],
            }
            for token in translation.tokens
        ],
    }


def expected_of(store: Path, model: Seq2Seq, sources: Sequence[str]) -> dict[str, Any]:
    """The units of the store and its translations."""
    translator = Translator(store, model=model)
    units = [[p.source, p.target, p.unit_id, p.origin, p.changed_at] for p in translator.snapshot.all_units()]
    return {"units": units, "translations": [described(found) for found in translator.translate(sources)]}


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir()
    torch.set_num_threads(1)
    toy.train_model(folder / "model", steps=1200, width=32, normalization="identity")
    model = load_golden_model(folder / "model")
    model.identity = replace(model.identity, name=NAME)  # not a path of this machine
    store = make_store(folder, model)
    chosen = (*_SENTENCES[3:7], *_SENTENCES[90:92], *_SENTENCES[111:114], *_SENTENCES[125:131])
    expected = expected_of(store.folder, model, [source for source, _ in chosen])
    content = json.dumps(expected, ensure_ascii=False, separators=(",", ":"))
    (folder / "expected.json").write_text(content.replace('{"source"', '\n{"source"') + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
