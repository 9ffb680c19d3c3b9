"""Other published ways to weigh the same neighbours: kernel-smoothed and robust kNN-MT, trained on the same cache."""

from nearmt.relatives.loading import RELATIVES, load_relative
from nearmt.relatives.network import Relative
from nearmt.relatives.robust import Robust
from nearmt.relatives.training import TrainedRelative, train_relative

__all__ = ["RELATIVES", "Relative", "Robust", "TrainedRelative", "load_relative", "train_relative"]
