"""Which model a store belongs to: what its manifest says, and refusing any other."""

from pathlib import Path
from typing import Any

from nearmt.errors import StoreMismatchError
from nearmt.seq2seq import Seq2Seq
from nearmt.store import Languages, Manifest


def model_description(model: Seq2Seq) -> dict[str, Any]:
    """What a manifest says of the model: enough to load it again and to refuse another."""
    return {**model.identity.as_dict(), "source_prefix": model.source_prefix, "engine": "torch"}


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
