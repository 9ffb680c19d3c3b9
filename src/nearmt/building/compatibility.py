"""The model that a store belongs to: its description in the manifest, and refusing any other model."""

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


def load_model(
    manifest: Manifest,
    model: str | Path | None = None,
    device: str = "cpu",
    offline: bool = False,
    engine: str | None = None,
) -> Seq2Seq:
    """Load the model of a store, by the name in the store or another name for the same weights.

    Unless `engine` is given, it is the one that the store was trained with, or built with if it is untrained.
    """
    described = manifest.model
    if model is None and Path(described["name"]).is_absolute() and not Path(described["name"]).is_dir():
        raise ModelError(f"the store's model is no longer at {described['name']}: give its new location as `model`")
    return Seq2Seq.load(
        model or described["name"],
        revision=described["revision"] if model is None else None,
        device=device,
        source_lang=manifest.languages.source,
        target_lang=manifest.languages.target,
        source_prefix=described["source_prefix"],
        offline=offline,
        engine=engine or engine_for(manifest, device),
    )


def engine_for(manifest: Manifest, device: str) -> str:
    """The engine to run a store's model on: the store's own, or torch on devices other than the CPU."""
    return manifest.engine if device == "cpu" else "torch"
