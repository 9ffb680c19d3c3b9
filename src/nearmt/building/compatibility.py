"""Which model a store belongs to: what its manifest says, and refusing any other."""

from pathlib import Path
from typing import Any

from nearmt.datastore import Languages, Manifest, Snapshot
from nearmt.errors import ModelError, StoreDamagedError, StoreMismatchError
from nearmt.models import Seq2Seq


def model_description(model: Seq2Seq) -> dict[str, Any]:
    """What a manifest says of the model: enough to load it again and to refuse another."""
    identity = model.identity.as_dict()
    folder = Path(identity["name"])
    # A folder is named so that it is found from anywhere; a hub id stays as it is.
    name = str(folder.absolute()) if folder.is_dir() else identity["name"]
    return {**identity, "name": name, "source_prefix": model.source_prefix, "engine": model.engine}


def check_values(snapshot: Snapshot, model: Seq2Seq) -> None:
    """Refuse values that are no tokens of the model: the file was changed."""
    if len(snapshot) and not (snapshot.values.min() >= 0 and snapshot.values.max() < model.vocabulary_size):
        raise StoreDamagedError(f"{snapshot.folder} holds values that are no tokens: run nearmt verify")


def check_model(manifest: Manifest, model: Seq2Seq, folder: Path) -> None:
    """Refuse a model, tokenizer, layer or language pair other than the store's own, naming both."""
    stored, given = manifest.model, model_description(model)
    for part, what in (("weights", "weights"), ("tokenizer", "tokenizer"), ("key_layer", "key layer"),
                       ("width", "width"), ("source_prefix", "source prefix")):  # fmt: skip
        if stored.get(part) != given[part]:
            raise StoreMismatchError(
                f"{folder} was built with {stored['name']} ({what} {_short(stored.get(part))}) and cannot be used "
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
    """The model a store belongs to, by the name it was built with or another name for the same weights.

    Without a word about the engine it is the one whose distances Meta-k saw, or else the one that made the keys.
    """
    described = manifest.model
    if model is None and Path(described["name"]).is_absolute() and not Path(described["name"]).is_dir():
        raise ModelError(f"the store's model is no longer at {described['name']}: say where it is with --model")
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
