"""Loads config, tokenizer and weights from a hub id or a folder; errors of other libraries become one sentence."""

import json
import logging
import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import (
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import cached_file
from transformers.utils import logging as transformers_logging

from nearmt.errors import MissingExtraError, ModelError, SettingError
from nearmt.models.processor import SIXTEEN_BITS, why_not

_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "auto": "auto"}
_WEIGHT_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
_quiet_lock = threading.RLock()  # logging and warnings are global, so one model is loaded at a time
_EXTRAS = ("sentencepiece", "sacremoses", "protobuf", "tiktoken")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadedFiles:
    """The loaded objects and their files."""

    config: PreTrainedConfig
    tokenizer: PreTrainedTokenizerBase
    model: PreTrainedModel
    revision: str | None
    weight_files: tuple[Path, ...]
    tokenizer_files: tuple[Path, ...]
    is_fallback: bool = False  # float32, because this processor does not support the requested type


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' progress bars and warnings off the user's terminal."""
    hub_logger = logging.getLogger("huggingface_hub")
    with _quiet_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        levels = transformers_logging.get_verbosity(), hub_logger.level
        shows_bars = transformers_logging.is_progress_bar_enabled()
        transformers_logging.set_verbosity(logging.CRITICAL)
        hub_logger.setLevel(logging.CRITICAL)
        transformers_logging.disable_progress_bar()  # the hub's bars too
        try:
            yield
        finally:
            transformers_logging.set_verbosity(levels[0])
            hub_logger.setLevel(levels[1])
            if shows_bars:
                transformers_logging.enable_progress_bar()


def load_files(name: str, *, revision: str | None, device: str, dtype: str, offline: bool) -> LoadedFiles:
    """Config, tokenizer and frozen weights of a hub id or a folder."""
    if dtype not in _DTYPES:
        raise SettingError(f"`dtype` must be one of {', '.join(_DTYPES)}, not {dtype!r}")
    place = _check_device(device)
    if _looks_like_folder(name) and not Path(name).is_dir():
        raise ModelError(f"the model folder {name} does not exist")
    hub: dict[str, Any] = {"revision": revision or "main", "local_files_only": offline}
    with quiet():
        folder = Path(_required_file(name, "config.json", hub)).parent
        commit = folder.name if re.fullmatch(r"[0-9a-f]{40}", folder.name) else None
        if commit is not None:
            hub["revision"] = commit  # all other files from the same commit, without asking the hub about cached ones
        config = _load_config(name, hub)
        tokenizer = _load_tokenizer(name, hub)
        weight_files = _find_weights(name, hub)
        model = _load_weights(name, hub, weight_files, _DTYPES[dtype])
        unusable = _unusable_type(model) if place.type == "cpu" else None
        if unusable is not None:
            del model
            model = _load_weights(name, hub, weight_files, torch.float32)  # the stored weights, not the rounded ones
    if unusable is not None:
        wanted = str(unusable[0]).removeprefix("torch.")
        log.warning("%s runs in float32, because this processor cannot compute in %s: %s", name, wanted, unusable[1])
    try:
        model = model.to(place).eval().requires_grad_(False)
    except (RuntimeError, AssertionError) as error:
        raise SettingError(f"the model cannot be moved to `device` {device!r}: {_sentence(error)}") from error
    names = {*_TOKENIZER_FILES, *tokenizer.vocab_files_names.values()}
    return LoadedFiles(
        config=config,
        tokenizer=tokenizer,
        model=model,
        revision=commit or revision,
        weight_files=weight_files,
        tokenizer_files=tuple(folder / file for file in sorted(names) if (folder / file).is_file()),
        is_fallback=unusable is not None,
    )


def _looks_like_folder(name: str) -> bool:
    return name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name or Path(name).exists()


def _check_device(device: str) -> torch.device:
    try:
        place = torch.device(device)
    except RuntimeError as error:
        raise SettingError(f"unknown `device` {device!r}") from error
    if place.type == "cuda" and not torch.cuda.is_available():
        raise SettingError(f"`device` {device!r} is not available on this machine")
    return place


def _sentence(error: BaseException) -> str:
    """The first sentence of another library's message, without its full stop."""
    text = " ".join(str(error).split()) or type(error).__name__
    return re.split(r"(?<=[a-z])\. ", text, maxsplit=1)[0].rstrip(".")[:300]


def _required_file(name: str, file: str, hub: dict[str, Any]) -> str:
    try:
        found = cached_file(name, file, **hub)
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot load the model {name}: {_sentence(error)}") from error
    if found is None:
        raise ModelError(f"cannot load the model {name}: it has no {file}")
    return str(found)


def _load_config(name: str, hub: dict[str, Any]) -> PreTrainedConfig:
    try:
        config = AutoConfig.from_pretrained(name, **hub)
    except Exception as error:
        raise ModelError(f"cannot read the config of {name}: {_sentence(error)}") from error
    if not config.is_encoder_decoder or type(config) not in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING:
        raise ModelError(f"{name} is a {config.model_type} model, not an encoder–decoder for text")
    return config


def _load_tokenizer(name: str, hub: dict[str, Any]) -> PreTrainedTokenizerBase:
    try:
        return AutoTokenizer.from_pretrained(name, **hub)
    except ImportError as error:
        package = next((extra for extra in _EXTRAS if extra in str(error).lower()), None)
        if package is None:
            raise ModelError(f"cannot load the tokenizer of {name}: {_sentence(error)}") from error
        raise MissingExtraError(f"the tokenizer of {name}", package) from error
    except Exception as error:  # damaged files raise many kinds of error
        raise ModelError(f"cannot load the tokenizer of {name}: {_sentence(error)}") from error


def _find_weights(name: str, hub: dict[str, Any]) -> tuple[Path, ...]:
    """The weight files that `from_pretrained` will read: safetensors before PyTorch, one file before shards."""
    for file in _WEIGHT_FILES:
        try:
            found = cached_file(name, file, _raise_exceptions_for_missing_entries=False, **hub)
        except (OSError, ValueError) as error:
            raise ModelError(f"cannot load the model {name}: {_sentence(error)}") from error
        if found is None:
            continue
        if file.endswith(".index.json"):
            shards = sorted(set(json.loads(Path(found).read_text(encoding="utf-8"))["weight_map"].values()))
            return tuple(Path(_required_file(name, shard, hub)) for shard in shards)
        return (Path(found),)
    raise ModelError(f"{name} has no weights in safetensors or PyTorch form")


def _load_weights(name: str, hub: dict[str, Any], files: tuple[Path, ...], dtype: Any) -> PreTrainedModel:
    try:
        # Set explicitly, because otherwise transformers may ask the hub for a converted copy.
        model, info = AutoModelForSeq2SeqLM.from_pretrained(
            name, dtype=dtype, use_safetensors=files[0].suffix == ".safetensors", output_loading_info=True, **hub
        )
    except Exception as error:  # damaged files raise many kinds of error
        raise ModelError(f"cannot load the weights of {name}: {_sentence(error)}") from error
    parameters = {key for key, _ in model.named_parameters()}
    missing = sorted(parameters.intersection(info["missing_keys"]))
    if missing:
        raise ModelError(f"the weights of {name} are incomplete: {missing[0]} and {len(missing) - 1} more are missing")
    return model


def _unusable_type(model: PreTrainedModel) -> tuple[torch.dtype, str] | None:
    """A 16-bit type of the weights that this processor cannot multiply, and the reason; None if there is none."""
    used = {parameter.dtype for parameter in model.parameters()}
    tried = ((dtype, why_not(dtype)) for dtype in SIXTEEN_BITS if dtype in used)
    return next(((dtype, reason) for dtype, reason in tried if reason is not None), None)
