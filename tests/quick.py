"""Settings that train a store in seconds."""

from nearmt.training.schedule import TrainingSettings
from nearmt.training.train_store import AdaptationSettings

QUICK = AdaptationSettings(
    max_k=8,
    temperature=0.1,
    max_decoded=20,
    methods=("adaptive",),
    training=TrainingSettings(steps=600, first_check=100),
)
