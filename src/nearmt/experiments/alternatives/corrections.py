"""What one correction costs: processor seconds until the next request uses it."""

import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from nearmt.corpus import SentencePair
from nearmt.experiments.alternatives.trainable import Trainable
from nearmt.models import Seq2Seq
from nearmt.store import Store
from nearmt.translator import Translator


def correction_of_store(folder: Path, model: Seq2Seq, pairs: Sequence[SentencePair]) -> float:
    """Adding one pair to a store, and following the change in a running translator."""
    with tempfile.TemporaryDirectory() as scratch:
        copied = Path(shutil.copytree(folder, Path(scratch) / "copy.store"))
        store, translator = Store(copied, model=model), Translator(copied, model=model)
        translator.matches(pairs[0].source)  # loads what stays loaded
        times = []
        for number, pair in enumerate(pairs):
            began = time.process_time()
            store.add([pair], origin=f"correction {number}")
            translator.refresh()
            times.append(time.process_time() - began)
    return statistics.median(times)


def correction_of_weights(trainable: Trainable, pair: SentencePair, rate: float) -> float:
    """One gradient step on the pair, and loading the changed model in the engine that translates.

    Whether the model then says what the correction says is another matter.
    """
    model = trainable.model
    with tempfile.TemporaryDirectory() as scratch:
        began = time.process_time()
        trainable.network.requires_grad_(True)
        trainable.accumulate(trainable.batches([pair], 1)[0])
        torch.optim.SGD(trainable.network.parameters(), lr=rate).step()
        trainable.network.zero_grad(set_to_none=True)
        folder = trainable.save(Path(scratch) / "changed")
        Seq2Seq.load(folder, source_lang=model.source_lang, target_lang=model.target_lang, engine=model.engine)
        return time.process_time() - began
