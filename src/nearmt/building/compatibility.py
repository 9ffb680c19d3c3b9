"""The model that a store belongs to: its description in the manifest, and refusing any other model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearmt.datastore import Languages, Manifest, Snapshot
from nearmt.errors import ModelError, StoreDamagedError, StoreMismatchError
from nearmt.models import Seq2Seq


def model_description(model: Seq2Seq) -> dict[str, Any]:
    """The model as a manifest describes it: enough to load it again and to refuse another."""
    identity = model.identity.as_dict()
    folder = Path(identity["name"])
    # A folder is stored as an absolute path; a hub id is stored unchanged.
    name = str(folder.absolute()) if folder.is_dir() else identity["name"]
    return {**identity, "name": name, "source_prefix": model.source_prefix, "engine": model.engine}


def check_values(snapshot: Snapshot, model: Seq2Seq) -> None:
    """Refuse values that are not token ids of the model: the file was changed."""
    if len(snapshot) and not (snapshot.values.min() >= 0 and snapshot.values.max() < model.vocabulary_size):
        raise StoreDamagedError(f"{snapshot.folder} contains values that are not token ids: run nearmt verify")


def check_model(manifest: Manifest, model: Seq2Seq, folder: Path) -> None:
    """Refuse a model, tokenizer, layer or language pair other than the store's own, naming both."""
    stored, given = manifest.model, model_description(model)
    for part in ("weights", "tokenizer", "key_layer", "width", "source_prefix"):
        if stored[part] != given[part]:
            what = part.replace("_", " ")
            raise StoreMismatchError(
                f"{folder} was built with {stored['name']} ({what} {_short(stored[part])}) and cannot be used "
                f"with {given['name']} ({what} {_short(given[part])})"
            )
    pair = Languages(model.source_lang, model.target_lang)
    if pair != manifest.languages:
        raise StoreMismatchError(f"{folder} translates {manifest.languages}, and the model was loaded for {pair}")


def _short(value: object) -> str:
    return str(value)[:12]


@dataclass(frozen=True)
class ModelRequest:
    """How to load the model of a store.

    `model` is another name or path of the same weights; None is the name in the store. If `engine` is None, the model
    runs on the engine that the store was trained with, or built with if it is untrained.
    """

    model: str | Path | None = None
    revision: str | None = None
    engine: str | None = None
    device: str = "cpu"
    dtype: str = "float32"
    offline: bool = False


def as_request(model: ModelRequest | str | Path | None, **options: Any) -> ModelRequest:
    """Return the request itself, or a request for a model by name with these options."""
    return model if isinstance(model, ModelRequest) else ModelRequest(model, **options)


def load_model(manifest: Manifest, request: ModelRequest) -> Seq2Seq:
    """Load the model that a store was built with."""
    described = manifest.model
    if request.model is None and Path(described["name"]).is_absolute() and not Path(described["name"]).is_dir():
        raise ModelError(f"the store's model is no longer at {described['name']}: give its new location as `model`")
    return Seq2Seq.load(
        request.model or described["name"],
        revision=request.revision or (described["revision"] if request.model is None else None),
        device=request.device,
        dtype=request.dtype,
        source_lang=manifest.languages.source,
        target_lang=manifest.languages.target,
        source_prefix=described["source_prefix"],
        offline=request.offline,
        engine=request.engine or engine_for(manifest, request.device, request.dtype),
    )


def engine_for(manifest: Manifest, device: str, dtype: str = "float32") -> str:
    """The engine to run a store's model on: the store's own, or torch where int8 cannot run.

    The int8 engine needs a CPU and float32 weights to start from.
    """
    return manifest.engine if device == "cpu" and not dtype.endswith("float16") else "torch"
