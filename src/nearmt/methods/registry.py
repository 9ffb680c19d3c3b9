"""Methods by name: what a store learned, made ready to weigh neighbours."""

from dataclasses import dataclass, replace
from typing import Any

from nearmt.datastore import Snapshot, check_file
from nearmt.errors import SettingError, StoreMismatchError
from nearmt.methods.metak import MetaK
from nearmt.methods.mixture import Method, Uniform, Vanilla
from nearmt.methods.variant import VariantNetwork
from nearmt.methods.variants import VARIANTS, load_variant
from nearmt.retrieval.search import Retriever

TRAINED = ("adaptive", *VARIANTS)
USUALLY_TRAINED = ("adaptive", "robust")
METHODS = ("adaptive", "vanilla", "uniform", *VARIANTS, "base")
AUTO = "auto"  # of the networks of a store, the one that made its held-out sentences likeliest
# Networks decide themselves, uniform has no share, and the plain model has no neighbours.
_USELESS = {"vanilla": (), "uniform": ("--share",)}
_ALL = ("--k", "--temperature", "--share")


def retrieval_signature(retriever: Retriever, engine: str) -> dict[str, Any]:
    """What the distances that the networks saw depend on; `engine` is what the model runs on."""
    described = retriever.snapshot.manifest.index or {}
    return {
        "index": described.get("factory", "Flat"),
        "num_probes": described.get("num_probes", 1),
        "reranked": retriever.reranked,
        "keys": retriever.snapshot.manifest.key_type,
        "engine": engine,
    }


def _is_like(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether the same distances come out. Those measured on the keys do not depend on the index."""
    if all(signature["index"] == "Flat" or signature["reranked"] for signature in (one, other)):
        return all(one[part] == other[part] for part in ("keys", "engine"))
    return one == other


def describe_method(method: Method | None) -> dict[str, Any]:
    """The numbers that a method's result depends on."""
    if method is None:
        return {}
    if isinstance(method, MetaK | VariantNetwork):
        return method.settings
    return {key: value for key, value in vars(method).items() if key != "name"}


@dataclass(frozen=True)
class MethodRequest:
    """A method by name; what is None comes from what the store learned."""

    name: str = AUTO
    k: int | None = None
    temperature: float | None = None
    knn_share: float | None = None


def best_of(learned: dict[str, Any] | None) -> str:
    """The name of the method that a store is best translated with."""
    name: str = (learned or {}).get("method", "adaptive")
    return name


def networks_of(learned: dict[str, Any] | None) -> dict[str, str]:
    """Method name → file name of what a store has learned. Stores of before there were others have one, Meta-k."""
    if learned is None:
        return {}
    named: dict[str, str] | None = learned.get("networks")
    if named is None:
        return dict(zip(("adaptive",), learned["files"], strict=True))
    return {name: file for name, file in named.items() if name in TRAINED}


def _trained_network(name: str, snapshot: Snapshot, retriever: Retriever, engine: str) -> Method:
    learned, folder = snapshot.manifest.adaptation, snapshot.folder
    networks = networks_of(learned)
    if learned is None and name == "adaptive":
        raise SettingError(
            f"{folder} has no trained Meta-k: run nearmt train {folder}, or ask for --method vanilla "
            "with --k, --temperature and --share"
        )
    if learned is None or name not in networks:
        raise SettingError(
            f"{folder} has no trained {name} network: run nearmt train {folder}{_methods_option(networks, name)}"
        )
    if not _is_like(learned["retrieval"], retrieval_signature(retriever, engine)):
        raise StoreMismatchError(
            f"{folder}: {'Meta-k' if name == 'adaptive' else name} was trained with {learned['retrieval']} and the "
            f"store now searches with {retrieval_signature(retriever, engine)}: "
            f"run nearmt train {folder}{_methods_option(networks, name)}"
        )
    path = folder / networks[name]
    check_file(path, learned["files"][networks[name]])
    return MetaK.load(path) if name == "adaptive" else load_variant(path)


def _methods_option(networks: dict[str, str], name: str) -> str:
    """What to train so that nothing of what is there is lost."""
    wanted = [method for method in TRAINED if method in networks or method in (*USUALLY_TRAINED, name)]
    return "" if set(wanted) == set(USUALLY_TRAINED) else f" --methods {','.join(wanted)}"


def make_method(request: MethodRequest, snapshot: Snapshot, retriever: Retriever, engine: str) -> Method | None:
    """The method asked for, with the store's own settings where none are given. None is the plain model."""
    if request.name == AUTO:
        request = replace(request, name=best_of(snapshot.manifest.adaptation))
    if request.name not in METHODS:
        raise SettingError(f"the method must be one of {', '.join((AUTO, *METHODS))}, not {request.name}")
    given = {"--k": request.k, "--temperature": request.temperature, "--share": request.knn_share}
    useless = [name for name in _USELESS.get(request.name, _ALL) if given[name] is not None]
    if useless:
        raise SettingError(f"{request.name} does not take {' and '.join(useless)}")
    if request.name == "base":
        return None
    learned = snapshot.manifest.adaptation
    folder = snapshot.folder
    if request.name in TRAINED:
        return _trained_network(request.name, snapshot, retriever, engine)
    stored: dict[str, Any] = (learned or {}).get(request.name, {})
    max_k = request.k if request.k is not None else stored.get("k", stored.get("max_k"))
    temperature = request.temperature if request.temperature is not None else stored.get("temperature")
    if request.name == "uniform":
        if max_k is None or temperature is None:
            raise SettingError(f"{folder} is not trained, so uniform needs --k and --temperature")
        return Uniform(int(max_k), float(temperature))
    share = request.knn_share if request.knn_share is not None else stored.get("knn_share")
    if max_k is None or temperature is None or share is None:
        raise SettingError(f"{folder} is not trained, so vanilla needs --k, --temperature and --share")
    return Vanilla(int(max_k), float(temperature), float(share))
