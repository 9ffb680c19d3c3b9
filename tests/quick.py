"""Settings that train a store in seconds, and those of a store as in the paper."""

from nearmt.building.builder import BuildSettings
from nearmt.training.schedule import TrainingSettings
from nearmt.training.train_store import AdaptationSettings

BY_TOKENS = BuildSettings(key_type="float16", dims=None, retrieval="tokens")
QUICK = AdaptationSettings(
    max_k=8,
    temperature=0.1,
    max_decoded=20,
    methods=("adaptive",),
    training=TrainingSettings(steps=600, first_check=100),
)
