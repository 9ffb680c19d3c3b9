"""Methods by name: what a store learned, made ready to weigh neighbours."""

from dataclasses import dataclass
from typing import Any

from nearmt.errors import SettingError, StoreMismatchError
from nearmt.metak import MetaK
from nearmt.mixture import Method, Uniform, Vanilla
from nearmt.retriever import Retriever
from nearmt.store import Snapshot

METHODS = ("adaptive", "vanilla", "uniform", "base")
# Meta-k decides itself, uniform has no share, and the plain model has no neighbours.
_USELESS = {
    "adaptive": ("--k", "--temperature", "--share"),
    "vanilla": (),
    "uniform": ("--share",),
    "base": ("--k", "--temperature", "--share"),
}


def retrieval_signature(retriever: Retriever, engine: str) -> dict[str, Any]:
    """What the distances that Meta-k saw depend on; `engine` is what the model runs on."""
    described = retriever.snapshot.manifest.index or {}
    return {
        "index": described.get("factory", "Flat"),
        "num_probes": described.get("num_probes", 1),
        "reranked": retriever.reranked,
        "keys": retriever.snapshot.manifest.key_type,
        "engine": engine,
    }


def describe_method(method: Method | None) -> dict[str, Any]:
    """The numbers that a method's result depends on."""
    if method is None:
        return {}
    if isinstance(method, MetaK):
        return method.settings
    return {key: value for key, value in vars(method).items() if key != "name"}


@dataclass(frozen=True)
class MethodRequest:
    """A method by name; what is None comes from what the store learned."""

    name: str = "adaptive"
    k: int | None = None
    temperature: float | None = None
    knn_share: float | None = None


def make_method(request: MethodRequest, snapshot: Snapshot, retriever: Retriever, engine: str) -> Method | None:
    """The method asked for, with the store's own settings where none are given. None is the plain model."""
    if request.name not in METHODS:
        raise SettingError(f"the method must be one of {', '.join(METHODS)}, not {request.name}")
    given = {"--k": request.k, "--temperature": request.temperature, "--share": request.knn_share}
    useless = [name for name in _USELESS[request.name] if given[name] is not None]
    if useless:
        raise SettingError(f"{request.name} does not take {' and '.join(useless)}")
    if request.name == "base":
        return None
    learned = snapshot.manifest.adaptation
    folder = snapshot.folder
    if request.name == "adaptive":
        if learned is None:
            raise SettingError(
                f"{folder} has no trained Meta-k: run nearmt train {folder}, or ask for --method vanilla "
                "with --k, --temperature and --share"
            )
        if learned["retrieval"] != retrieval_signature(retriever, engine):
            raise StoreMismatchError(
                f"{folder}: Meta-k was trained with {learned['retrieval']} and the store now searches with "
                f"{retrieval_signature(retriever, engine)}: run nearmt train {folder}"
            )
        (name,) = learned["files"]
        return MetaK.load(folder / name)
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
