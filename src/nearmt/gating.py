"""Teaching a gate, and choosing how strict it may be.

It learns on the tokens that the networks were trained on, by the gains that they brought there; then it is made as
strict as it can be without losing more than a tenth of a BLEU point on dev. A difference so small drowns in the noise
of the few hundred sentences that are decoded for it, so it must be expected, too: the gain that a threshold leaves out
on parts of dev that a gate has not seen, as a share of all gain, times what the memory brings in BLEU.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from nearmt.decoder import Decoder, DecodingSettings
from nearmt.devset import DevSet
from nearmt.gate import Gate, Glance
from nearmt.metak import NeighborCache, TrainingSettings
from nearmt.metak.cache import TINY
from nearmt.metak.schedule import BETAS, OnCheck, check_parts, fit, one_thread
from nearmt.mixture import Method
from nearmt.neighbors import EntryColumns
from nearmt.progress import Progress
from nearmt.retriever import Retriever
from nearmt.scores import bleu
from nearmt.seq2seq import Seq2Seq

MAX_LOSS = 0.1  # BLEU
_SKIPPED_SHARES = (0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1, 0.05)
_PARTS = 5  # of dev, each of neighbouring sentences: those of one document stand together and are too much alike
_RATE, _DECAY = 1e-3, 0.1
_LEAST_SPREAD = 1e-3
_LOWEST, _HIGHEST = -2.0, 4.0  # gains beyond these count as these


def gains(cache: NeighborCache, method: Method, columns: EntryColumns) -> torch.Tensor:
    """By how much the mixed log-probability of each gold token is above the model's own, within limits."""
    weights = method.weigh(cache.retrieved(columns))
    token_ids = cache.neighbors.token_ids[:, : weights.neighbor_weights.shape[1]]
    hits = (weights.neighbor_weights * (token_ids == cache.gold.unsqueeze(1))).sum(dim=1)
    mixed = weights.nmt_share * cache.gold_probability + hits
    gain = mixed.clamp_min(TINY).log() - cache.gold_probability.clamp_min(TINY).log()
    return gain.clamp(_LOWEST, _HIGHEST)


def glance_at(cache: NeighborCache, rng: np.random.Generator) -> Glance:
    """The rows of a cache as the decoder would see them, had it searched now and then."""
    where = {
        key: row for row, key in enumerate(zip(cache.sentence_ids.tolist(), cache.positions.tolist(), strict=True))
    }
    back = rng.geometric(0.5, len(cache))
    last, gap = torch.zeros(len(cache)), torch.zeros(len(cache))
    for (sentence, position), row in where.items():
        before = where.get((sentence, position - int(back[row])))
        if before is not None:
            last[row] = cache.neighbors.squared_distances[before, 0]
            gap[row] = float(back[row])
    return Glance(cache.states.float(), cache.top_probabilities, last, gap)


def train_gate(
    cache: NeighborCache,
    held_out: NeighborCache,
    columns: EntryColumns,
    method: Method,
    settings: TrainingSettings | None = None,
    on_check: OnCheck = lambda step, loss: None,
) -> Gate:
    """Train on the tokens that Meta-k was trained on; keep the state that foretells the held-out gains best."""
    settings = settings or TrainingSettings()
    check_parts(cache, held_out)
    rng = np.random.default_rng(settings.seed)
    glances = [glance_at(part, rng) for part in (cache, held_out)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        states = glances[0].states
        length, near = float(states.norm(dim=1).median()), cache.median_distance(0)
        gate = Gate(states.shape[1], 1 / length if length > 0 else 1.0, 1 / near if near > 0 else 1.0)
        gate.middle, gate.spread = states.mean(dim=0), states.std(dim=0, correction=0).clamp_min(_LEAST_SPREAD)
    parts = [
        (gate.inputs(glance), _wanted(gate, part, method, columns))
        for glance, part in zip(glances, (cache, held_out), strict=True)
    ]
    with one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        (best,) = fit(_Learner(gate, *parts), cache.sentence_ids, settings, on_check)
    gate.load_state_dict(best.state)
    return gate.eval()


def foretold_unseen(
    cache: NeighborCache,
    columns: EntryColumns,
    method: Method,
    settings: TrainingSettings | None = None,
    on_part: Callable[[int], None] = lambda done: None,
) -> torch.Tensor:
    """(rows,): the gains foretold by gates that have seen neither a row's part of dev nor chosen by it."""
    foretold = torch.zeros(len(cache))
    parts = np.array_split(np.unique(cache.sentence_ids.numpy()), _PARTS)
    for number, part in enumerate(parts):
        rest, unseen = cache.split(part.tolist())
        gate = train_gate(*rest.split(parts[number - 1].tolist()), columns, method, settings)
        is_unseen = torch.from_numpy(np.isin(cache.sentence_ids.numpy(), part))
        foretold[is_unseen] = gate.foretell(glance_at(unseen, np.random.default_rng(number))).gains
        on_part(number + 1)
    return foretold


def _wanted(gate: Gate, cache: NeighborCache, method: Method, columns: EntryColumns) -> torch.Tensor:
    """(rows, 2): what the gate should foretell."""
    nearest = cache.neighbors.squared_distances[:, 0]
    return torch.stack((gains(cache, method, columns), gate.log_distances(nearest)), dim=1)


class _Learner:
    """The gate under the schedule that every network learns by."""

    num_networks = 1

    def __init__(
        self,
        gate: Gate,
        train: tuple[torch.Tensor, torch.Tensor],
        held_out: tuple[torch.Tensor, torch.Tensor],
    ) -> None:
        self._gate, self._train, self._held_out = gate, train, held_out
        self._optimizer = torch.optim.AdamW(gate.parameters(), lr=_RATE, betas=BETAS, weight_decay=_DECAY)

    def step(self, rows: torch.Tensor, rates: torch.Tensor) -> None:
        inputs, wanted = self._train
        self._gate.train()
        loss = nn.functional.huber_loss(self._gate(inputs[rows]), wanted[rows])
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if not float(rates[0]):
            return
        self._optimizer.step()

    def held_out_losses(self) -> list[float]:
        inputs, wanted = self._held_out
        self._gate.eval()
        with torch.inference_mode():
            return [float(nn.functional.huber_loss(self._gate(inputs), wanted))]

    def state_of(self, number: int) -> dict[str, torch.Tensor]:
        return {name: part.detach().clone() for name, part in self._gate.state_dict().items()}


class GateChooser:
    """Tries thresholds, the strictest first."""

    def __init__(
        self, model: Seq2Seq, retriever: Retriever, method: Method, decoding: DecodingSettings, progress: Progress
    ) -> None:
        self._model, self._retriever, self._method, self._decoding = model, retriever, method, decoding
        self._progress = progress

    def choose(
        self,
        gate: Gate,
        dev: DevSet,
        judge: list[int],
        cache: NeighborCache,
        wanted: float,
        settings: TrainingSettings | None = None,
    ) -> tuple[Gate, dict[str, Any]]:
        """The strictest gate that is expected to come within a tenth of the BLEU `wanted`, and does; what was tried."""
        tried = []
        for threshold, lost in self._expected_losses(dev, judge, cache, wanted, settings):
            if lost > MAX_LOSS:
                continue
            stricter = gate.with_threshold(threshold)
            score, skipped = self._judge(stricter, dev, judge)
            tried.append({"threshold": threshold, "expected_loss": lost, "skipped_share": skipped, "bleu": score})
            if score >= wanted - MAX_LOSS:
                return stricter, {**tried[-1], "bleu_without_gate": wanted, "tried": tried}
        open_gate = gate.with_threshold(float("-1e9"))
        return open_gate, {
            "threshold": open_gate.threshold,
            "expected_loss": 0.0,
            "skipped_share": 0.0,
            "bleu": wanted,
            "bleu_without_gate": wanted,
            "tried": tried,
        }

    def _expected_losses(
        self, dev: DevSet, judge: list[int], cache: NeighborCache, wanted: float, settings: TrainingSettings | None
    ) -> list[tuple[float, float]]:
        """Thresholds, the strictest first, and the BLEU that each is expected to cost."""
        if len(np.unique(cache.sentence_ids.numpy())) < _PARTS:
            return []
        columns = self._retriever.snapshot
        foretold = foretold_unseen(
            cache, columns, self._method, settings, lambda done: self._progress("teaching the gate", done, _PARTS)
        )
        brought = max(wanted - self._judge(None, dev, judge)[0], 0.0)
        real = gains(cache, self._method, columns)
        thresholds = [float(foretold.quantile(share)) for share in _SKIPPED_SHARES]
        lost = [float(real[foretold < threshold].sum()) for threshold in thresholds]
        total = max(float(real.sum()), 1e-9)
        return [(threshold, brought * part / total) for threshold, part in zip(thresholds, lost, strict=True)]

    def _judge(self, gate: Gate | None, dev: DevSet, judge: list[int]) -> tuple[float, float]:
        """BLEU with a gate, or of the model alone, and the share of rows left out."""
        counts = [0, 0]

        def count(asked: int, rows: int) -> None:
            counts[0] += asked
            counts[1] += rows

        excluded = [dev.excluded[i] for i in judge]
        decoder = (
            Decoder(self._model, self._retriever, self._method, self._decoding, gate)
            if gate is not None
            else Decoder(self._model, settings=self._decoding)
        )
        hypotheses = decoder.decode(
            [dev.sources[i] for i in judge],
            excluded if any(item is not None for item in excluded) else None,
            lambda done: self._progress("trying the gate", done, len(judge)),
            count,
        )
        score = bleu(decoder.texts(hypotheses), [dev.pairs[i].target for i in judge])
        return score, 1 - counts[0] / max(counts[1], 1)
