"""How strict a gate may be: as strict as it can without losing more than a tenth of a BLEU point on held-out dev."""

from typing import Any

import numpy as np

from nearmt.decoder import Decoder, DecodingSettings
from nearmt.devset import DevSet
from nearmt.gate import Gate
from nearmt.gate_training import glance_at
from nearmt.metak import NeighborCache
from nearmt.mixture import Method
from nearmt.progress import Progress
from nearmt.retriever import Retriever
from nearmt.scores import bleu
from nearmt.seq2seq import Seq2Seq

MAX_LOSS = 0.1  # BLEU
_SKIPPED_SHARES = (0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)


class GateChooser:
    """Tries thresholds, the strictest first."""

    def __init__(
        self, model: Seq2Seq, retriever: Retriever, method: Method, decoding: DecodingSettings, progress: Progress
    ) -> None:
        self._model, self._retriever, self._method, self._decoding = model, retriever, method, decoding
        self._progress = progress

    def choose(
        self, gate: Gate, dev: DevSet, judge: list[int], held_out: NeighborCache, wanted: float
    ) -> tuple[Gate, dict[str, Any]]:
        """The strictest gate that comes within a tenth of the BLEU `wanted`, and what was tried."""
        foretold = gate.foretell(glance_at(held_out, np.random.default_rng(1))).gains
        tried = []
        for share in _SKIPPED_SHARES:
            stricter = gate.with_threshold(float(foretold.quantile(share)))
            score, skipped = self._judge(stricter, dev, judge)
            tried.append({"threshold": stricter.threshold, "skipped_share": skipped, "bleu": score})
            if score >= wanted - MAX_LOSS:
                return stricter, {**tried[-1], "bleu_without_gate": wanted, "tried": tried}
        open_gate = gate.with_threshold(float("-1e9"))
        return open_gate, {
            "threshold": open_gate.threshold,
            "skipped_share": 0.0,
            "bleu": wanted,
            "bleu_without_gate": wanted,
            "tried": tried,
        }

    def _judge(self, gate: Gate, dev: DevSet, judge: list[int]) -> tuple[float, float]:
        counts = [0, 0]

        def count(asked: int, rows: int) -> None:
            counts[0] += asked
            counts[1] += rows

        excluded = [dev.excluded[i] for i in judge]
        decoder = Decoder(self._model, self._retriever, self._method, self._decoding, gate)
        hypotheses = decoder.decode(
            [dev.sources[i] for i in judge],
            excluded if any(item is not None for item in excluded) else None,
            lambda done: self._progress("trying the gate", done, len(judge)),
            count,
        )
        score = bleu(decoder.texts(hypotheses), [dev.pairs[i].target for i in judge])
        return score, 1 - counts[0] / max(counts[1], 1)
