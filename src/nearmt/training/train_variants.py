"""Training the variants of Meta-k on cached neighbours, with Meta-k's schedule.

The loss is the cross entropy of the mixture at the gold token, which needs only K numbers per row: the weights of the
neighbours that have it.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch

from nearmt.errors import SettingError
from nearmt.methods.kernel import Kernel
from nearmt.methods.registry import VARIANTS
from nearmt.methods.retrieved import EntryColumns
from nearmt.methods.robust import Robust
from nearmt.methods.variant import VariantNetwork
from nearmt.training.cache import NeighborCache
from nearmt.training.likelihood import base_loss, gold_losses, knn_mass_on_gold, mean_loss, weights_on_gold
from nearmt.training.perturbation import perturbed
from nearmt.training.schedule import BETAS, MAX_NORM, OnCheck, TrainingSettings, check_parts, fit, one_thread
from nearmt.training.train_metak import distance_scale


@dataclass(frozen=True)
class TrainedVariant:
    """A network and its loss on the held-out sentences that it was selected on."""

    network: VariantNetwork
    loss: float  # mean negative log-likelihood of the held-out tokens, in nats
    base_loss: float  # the loss of the model alone
    steps: int


def train_variant(
    name: str,
    cache: NeighborCache,
    held_out: NeighborCache,
    columns: EntryColumns,
    *,
    max_k: int,
    settings: TrainingSettings | None = None,
    on_check: OnCheck = lambda step, loss: None,
) -> TrainedVariant:
    """Train `kernel` or `robust` on `cache`; keep the state with the lowest loss on `held_out`.

    `columns` gives access to the keys and probabilities of the store that the neighbours come from.
    """
    settings = settings or TrainingSettings()
    if name not in VARIANTS:
        raise SettingError(f"the method must be one of {', '.join(VARIANTS)}, not {name}")
    check_parts(cache, held_out)
    if cache.neighbors.max_k < max_k:
        raise SettingError(f"the cache holds {cache.neighbors.max_k} neighbours per token, fewer than {max_k}")
    cache, held_out = cache.nearest(max_k), held_out.nearest(max_k)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        network = _new_network(name, cache, columns, max_k, settings)
    if name == Kernel.name:  # its 2·width inputs overfit before step 1000
        settings = replace(settings, first_check=min(settings.first_check, settings.check_every))
    with one_thread():
        (best,) = fit(_Learner(network, cache, held_out, columns, settings), cache.sentence_ids, settings, on_check)
    network.load_state_dict(best.state)
    return TrainedVariant(network.eval(), best.loss, base_loss(held_out), best.step)


def _new_network(
    name: str, cache: NeighborCache, columns: EntryColumns, max_k: int, settings: TrainingSettings
) -> VariantNetwork:
    scale = distance_scale(cache, settings.raw_features)
    median = cache.median_distance(-1) * scale or 100.0
    if name == Robust.name:
        return Robust(max_k, hidden=settings.hidden, distance_scale=scale, first_temperature=median / 10)
    width = columns.project(cache.states[:1]).shape[1]
    return Kernel(max_k, width=width, distance_scale=scale, first_bandwidth=math.sqrt(median))


class _Learner:
    """One network that `fit` trains."""

    num_networks = 1

    def __init__(
        self,
        network: VariantNetwork,
        cache: NeighborCache,
        held_out: NeighborCache,
        columns: EntryColumns,
        settings: TrainingSettings,
    ) -> None:
        self._network, self._cache, self._held_out, self._columns = network, cache, held_out, columns
        self._optimizer = torch.optim.Adam(network.parameters(), lr=settings.learning_rate, betas=BETAS)
        self._rng = np.random.default_rng(settings.seed)
        self._steps = 0

    def step(self, rows: torch.Tensor, rates: torch.Tensor) -> None:
        self._steps += 1
        batch = self._cache.rows(rows)
        retrieved = perturbed(self._network, batch, self._columns, self._steps, self._rng)
        weights = self._network(retrieved)
        mass = knn_mass_on_gold(weights, retrieved.neighbors.token_ids, batch.gold)
        loss = gold_losses(batch.gold_probability, weights.nmt_share, mass).mean()
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self._network.parameters(), MAX_NORM)
        self._optimizer.param_groups[0]["lr"] = float(rates[0])
        self._optimizer.step()

    def held_out_losses(self) -> list[float]:
        return [mean_loss(self._held_out, weights_on_gold(self._held_out, self._network, self._columns))]

    def state_of(self, number: int) -> dict[str, torch.Tensor]:
        return {name: part.detach().clone() for name, part in self._network.state_dict().items()}
