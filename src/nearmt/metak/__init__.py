"""Learning how far to trust the memory: the Meta-k network, its training on cached neighbours, tuned baselines."""

from nearmt.metak.cache import NeighborCache
from nearmt.metak.guarding import FittedGuard, fit_guard
from nearmt.metak.network import MetaK
from nearmt.metak.schedule import TrainingSettings
from nearmt.metak.training import train_metak
from nearmt.metak.tuning import VanillaCandidate, rank_vanilla, temperatures

__all__ = [
    "FittedGuard",
    "MetaK",
    "NeighborCache",
    "TrainingSettings",
    "VanillaCandidate",
    "fit_guard",
    "rank_vanilla",
    "temperatures",
    "train_metak",
]
