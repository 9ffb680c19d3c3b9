"""nearmt: adapt a frozen translation model to a domain with a translation memory, without fine-tuning.

    import nearmt

    store = nearmt.build("client.tmx", model="Helsinki-NLP/opus-mt-fr-en", out="client.store")
    translator = nearmt.Translator("client.store")
    result = translator.translate(["La procuration est valable."])[0]
    result.text, result.tokens[3].neighbors, result.tokens[3].nmt_share

Names are imported when they are first used, so importing nearmt is fast.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

from nearmt.cpus import available_cpus, cpu_quota
from nearmt.errors import (
    ClusterError,
    CorpusError,
    MissingExtraError,
    ModelError,
    NearMTError,
    OutputError,
    OutputExistsError,
    SettingError,
    StoreDamagedError,
    StoreError,
    StoreLockedError,
    StoreMismatchError,
)

if TYPE_CHECKING:
    from nearmt.building.builder import BuildSettings
    from nearmt.building.ray import RaySettings
    from nearmt.building.repair import repair
    from nearmt.corpus import SentencePair, read_pairs
    from nearmt.datastore import Filter
    from nearmt.decoding.beam import BeamSettings
    from nearmt.decoding.decoder import DecodingSettings
    from nearmt.decoding.evidence import NeighborEvidence, TokenEvidence
    from nearmt.evaluation.evaluate import Evaluation, evaluate
    from nearmt.models import Seq2Seq
    from nearmt.retrieval.sentences.matches import Match
    from nearmt.store import Store, build
    from nearmt.training.train_store import AdaptationSettings
    from nearmt.translator import Translation, Translator

__version__ = "0.1.0"

# Idle threads of torch and faiss spin for milliseconds and take the CPU from the int8 engine. This limits spinning to
# the gap between two tensor operations. It must be set before torch is loaded.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")
# Without a quota, torch's own default is better: it counts cores, not hardware threads.
if cpu_quota() is not None:
    os.environ.setdefault("OMP_NUM_THREADS", str(available_cpus()))

_MODULES = {
    "AdaptationSettings": "training.train_store",
    "BeamSettings": "decoding.beam",
    "BuildSettings": "building.builder",
    "DecodingSettings": "decoding.decoder",
    "Evaluation": "evaluation.evaluate",
    "Filter": "datastore",
    "Match": "retrieval.sentences.matches",
    "NeighborEvidence": "decoding.evidence",
    "RaySettings": "building.ray",
    "SentencePair": "corpus",
    "Seq2Seq": "models",
    "Store": "store",
    "TokenEvidence": "decoding.evidence",
    "Translation": "translator",
    "Translator": "translator",
    "build": "store",
    "evaluate": "evaluation.evaluate",
    "read_pairs": "corpus",
    "repair": "building.repair",
}

__all__ = [
    "AdaptationSettings",
    "BeamSettings",
    "BuildSettings",
    "ClusterError",
    "CorpusError",
    "DecodingSettings",
    "Evaluation",
    "Filter",
    "Match",
    "MissingExtraError",
    "ModelError",
    "NearMTError",
    "NeighborEvidence",
    "OutputError",
    "OutputExistsError",
    "RaySettings",
    "SentencePair",
    "Seq2Seq",
    "SettingError",
    "Store",
    "StoreDamagedError",
    "StoreError",
    "StoreLockedError",
    "StoreMismatchError",
    "TokenEvidence",
    "Translation",
    "Translator",
    "__version__",
    "build",
    "evaluate",
    "read_pairs",
    "repair",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"nearmt.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'nearmt' has no attribute {name!r}")
