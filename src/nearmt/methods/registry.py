"""Methods by name, with the networks and settings that a store was trained with."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from nearmt.datastore import FLAT, SENTENCES, Manifest, RetrievalSignature, Snapshot, TrainingRecord, check_file
from nearmt.errors import SettingError, StoreMismatchError
from nearmt.methods.mixture import Method, Uniform, Vanilla
from nearmt.methods.network import Network
from nearmt.methods.network_file import NETWORKS, load_network
from nearmt.retrieval.modes import CombinedRetriever, StoreRetriever
from nearmt.retrieval.search import Retriever

TRAINED = tuple(NETWORKS)
VARIANTS = TRAINED[1:]  # all but Meta-k
USUALLY_TRAINED = ("adaptive", "robust")
METHODS = ("adaptive", "vanilla", "uniform", *VARIANTS, "base")
AUTO = "auto"  # the store's network with the lowest loss on the held-out sentences
# The settings that a method takes; those not listed here take none.
_TAKES = {"vanilla": ("k", "temperature", "knn_share"), "uniform": ("k", "temperature")}


def retrieval_signature(retriever: StoreRetriever, engine: str) -> RetrievalSignature:
    """Everything that the retrieved neighbours depend on; `engine` is the model's engine."""
    manifest = retriever.snapshot.manifest
    index = manifest.index if retriever.retrieval != SENTENCES else None
    return RetrievalSignature(
        index=index.factory if index is not None else FLAT,
        num_probes=index.num_probes if index is not None else 1,
        reranked=_reranked(retriever),
        keys=manifest.key_type + ("" if manifest.key_dims == manifest.width else f" of {manifest.key_dims} dimensions"),
        engine=engine,
        retrieval=retriever.retrieval,
        max_entries=retriever.max_entries,
    )


def _reranked(retriever: StoreRetriever) -> int:
    """How many candidates of an index are compared exactly."""
    by_tokens = retriever.by_tokens if isinstance(retriever, CombinedRetriever) else retriever
    return by_tokens.reranked if isinstance(by_tokens, Retriever) else 0


def describe_method(method: Method | None) -> dict[str, Any]:
    """The settings of a method."""
    if method is None:
        return {}
    if isinstance(method, Network):
        return method.settings
    return {key: value for key, value in vars(method).items() if key != "name"}


@dataclass(frozen=True)
class MethodRequest:
    """A method by name. Settings that are None are taken from the store's training."""

    name: str = AUTO
    k: int | None = None
    temperature: float | None = None
    knn_share: float | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that are given."""
        given = {"k": self.k, "temperature": self.temperature, "knn_share": self.knn_share}
        return {name: value for name, value in given.items() if value is not None}


def available_methods(manifest: Manifest) -> tuple[str, ...]:
    """The methods that a store can translate with, without further settings."""
    tuned = tuple(_TAKES) if manifest.adaptation is not None else ()
    return ("base", *tuned, *manifest.networks)


def best_of(manifest: Manifest) -> str:
    """The name of the method that AUTO stands for."""
    return manifest.adaptation.method if manifest.adaptation is not None else "adaptive"


def _trained_network(name: str, snapshot: Snapshot, retriever: StoreRetriever, engine: str) -> Method:
    learned, folder = snapshot.manifest.adaptation, snapshot.folder
    networks = snapshot.manifest.networks
    if learned is None and name == "adaptive":
        raise SettingError(
            f"{folder} has no trained Meta-k: run nearmt train {folder}, or use `method` vanilla "
            "with `k`, `temperature` and `knn_share`"
        )
    if learned is None or name not in networks:
        raise SettingError(f"{folder} has no trained {name} network: {_training_hint(folder, networks, name)}")
    current = retrieval_signature(retriever, engine)
    if not learned.retrieval.gives_same_distances(current):
        raise StoreMismatchError(
            f"{folder}: {'Meta-k' if name == 'adaptive' else name} was trained with {learned.retrieval}, but the "
            f"store now searches with {current}: {_training_hint(folder, networks, name)}"
        )
    path = folder / networks[name]
    check_file(path, learned.files[networks[name]])
    return load_network(path)


def _training_hint(folder: Path, networks: Mapping[str, str], name: str) -> str:
    """How to train this network without losing the store's other networks."""
    wanted = [method for method in TRAINED if method in networks or method in (*USUALLY_TRAINED, name)]
    methods = "" if set(wanted) == set(USUALLY_TRAINED) else f" `methods` {','.join(wanted)}"
    return f"run nearmt train {folder}{methods}"


def make_method(request: MethodRequest, snapshot: Snapshot, retriever: StoreRetriever, engine: str) -> Method | None:
    """The requested method, with the store's settings where none are given. None is the plain model."""
    is_chosen = request.name != AUTO
    if not is_chosen:
        request = replace(request, name=best_of(snapshot.manifest))
    if request.name not in METHODS:
        raise SettingError(f"the method must be one of {', '.join((AUTO, *METHODS))}, not {request.name}")
    takes = _TAKES.get(request.name, ())
    unused = [f"`{name}`" for name in request.settings if name not in takes]
    if unused:
        name = request.name if is_chosen else f"the store's best method, {request.name},"
        fitting = " or ".join(method for method, settings in _TAKES.items() if {*request.settings} <= {*settings})
        raise SettingError(f"{name} does not take {' and '.join(unused)}: use `method` {fitting}")
    if request.name == "base":
        return None
    if request.name in TRAINED:
        return _trained_network(request.name, snapshot, retriever, engine)
    settings = {**_tuned(request.name, snapshot.manifest.adaptation), **request.settings}
    if set(settings) < set(takes):
        needed = " and ".join((", ".join(f"`{name}`" for name in takes[:-1]), f"`{takes[-1]}`"))
        raise SettingError(f"{snapshot.folder} is not trained, so {request.name} needs {needed}")
    return Uniform(settings["k"], settings["temperature"]) if request.name == "uniform" else Vanilla(**settings)


def _tuned(name: str, training: TrainingRecord | None) -> dict[str, Any]:
    """The settings of a baseline that training has chosen."""
    if training is None:
        return {}
    if name == "vanilla":
        return asdict(training.vanilla)
    return {"k": training.uniform.max_k, "temperature": training.uniform.temperature}
