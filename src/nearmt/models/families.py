"""The differences between model families: languages, prefixes, start token and tokenizer.

A family is recognised by the class of its tokenizer or by the language codes the tokenizer has. Any other model is
treated as one without stated languages (T5, BART, and whatever passes the probe when it is loaded).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from transformers import GenerationConfig, PreTrainedConfig, PreTrainedTokenizerBase

from nearmt.errors import ModelError
from nearmt.models.codecs import FairseqCodec, LanguageCodeCodec, MarianCodec, PlainCodec, TextCodec
from nearmt.models.languages import is_known_language, plain_code, resolve_code, same_language

_LANGUAGE_TOKEN = re.compile(r"__(?P<bare>[a-z]{2,3})__|(?P<code>[a-z]{2,3}_[A-Z][A-Za-z]{1,3})")
_OPUS_NAME = re.compile(r"opus-mt-(?:tc-)?(?:(?:tiny|base|big|bible-big)-)?([A-Za-z_]+)-([A-Za-z_]+)")


@dataclass(frozen=True)
class Request:
    """What the caller requested, and the model's own files."""

    model: str
    tokenizer: PreTrainedTokenizerBase
    config: PreTrainedConfig
    generation: GenerationConfig
    source_lang: str | None
    target_lang: str | None
    source_prefix: str | None


@dataclass(frozen=True)
class Conventions:
    """How one model reads and writes texts for one pair of languages."""

    codec: TextCodec
    source_lang: str | None
    target_lang: str | None
    source_prefix: str | None
    start_token_id: int
    eos_token_ids: tuple[int, ...]
    forced_prefix: tuple[int, ...]
    unknown_token_id: int | None
    pad_token_id: int


def establish_conventions(request: Request) -> Conventions:
    """The conventions of the family the model belongs to."""
    kind = type(request.tokenizer).__name__
    if kind.startswith("FSMT"):
        return _fairseq(request)
    if kind.startswith("Marian"):
        return _marian(request)
    codes = _language_codes(request.tokenizer)
    if codes:
        return _multilingual(request, codes)
    return _plain(request)


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _conventions(request: Request, codec: TextCodec | None = None, **changes: Any) -> Conventions:
    """The values of the configs, overridden by those of the family."""
    config, generation, tokenizer = request.config, request.generation, request.tokenizer
    start = _first(generation.decoder_start_token_id, getattr(config, "decoder_start_token_id", None))
    start = _first(start, generation.bos_token_id, getattr(config, "bos_token_id", None))
    eos = _eos_token_ids(request)
    if start is None:
        raise ModelError(f"the config of {request.model} does not define the start token of its decoder")
    pad = _first(generation.pad_token_id, getattr(config, "pad_token_id", None), tokenizer.pad_token_id, eos[0])
    forced = generation.forced_bos_token_id
    values: dict[str, Any] = {
        "source_lang": None if request.source_lang is None else plain_code(request.source_lang),
        "target_lang": None if request.target_lang is None else plain_code(request.target_lang),
        "source_prefix": request.source_prefix,
        "start_token_id": int(start),
        "eos_token_ids": eos,
        "forced_prefix": () if forced is None else (int(forced),),
        "unknown_token_id": tokenizer.unk_token_id,
        "pad_token_id": int(pad),
    } | changes
    if codec is None:
        codec = PlainCodec(
            tokenizer,
            eos_token_id=eos[0],
            source_prefix=values["source_prefix"] or "",
            forced_prefix=values["forced_prefix"],
        )
    return Conventions(codec=codec, **values)


def _eos_token_ids(request: Request) -> tuple[int, ...]:
    stated = _first(
        request.generation.eos_token_id,
        getattr(request.config, "eos_token_id", None),
        request.tokenizer.eos_token_id,
        request.tokenizer.sep_token_id,
    )
    if stated is None:
        raise ModelError(f"the config of {request.model} does not define the token that ends a sentence")
    return (int(stated),) if isinstance(stated, int) else tuple(int(token) for token in stated)


def _agree(request: Request, stated: Sequence[str | None]) -> tuple[str | None, str | None]:
    """The languages of a model for one pair; the caller may repeat them but not contradict them."""
    found: list[str | None] = []
    for requested, own, side in zip(
        (request.source_lang, request.target_lang), stated, ("source", "target"), strict=True
    ):
        if requested is not None and own is not None and not same_language(requested, own):
            raise ModelError(f"{request.model} has {plain_code(own)!r} as its {side} language, not {requested!r}")
        chosen = own if own is not None else requested
        found.append(None if chosen is None else plain_code(chosen))
    return found[0], found[1]


def _fairseq(request: Request) -> Conventions:
    tokenizer: Any = request.tokenizer
    source, target = _agree(request, (tokenizer.src_lang, tokenizer.tgt_lang))
    eos = _eos_token_ids(request)
    return _conventions(
        request,
        FairseqCodec(tokenizer, eos_token_id=eos[0], source_prefix=request.source_prefix or ""),
        source_lang=source,
        target_lang=target,
        unknown_token_id={piece: token for token, piece in tokenizer.decoder.items()}[tokenizer.unk_token],
    )


def _languages_in_name(name: str) -> tuple[str | None, str | None]:
    found = _OPUS_NAME.search(PurePath(name).name)
    return (found[1], found[2]) if found else (None, None)


def _marian(request: Request) -> Conventions:
    tokenizer: Any = request.tokenizer
    named = _languages_in_name(request.model)
    source, target = _first(tokenizer.source_lang, named[0]), _first(tokenizer.target_lang, named[1])
    prefix = request.source_prefix or ""
    codes = [code.strip("<>") for code in tokenizer.supported_language_codes]
    if codes and (target is None or not is_known_language(target)):
        # One model for many target languages: the source text starts with ">>code<<".
        if request.target_lang is None:
            raise ModelError(f"{request.model} translates into several languages: set `target_lang`")
        code = resolve_code(request.target_lang, codes, model=request.model)
        prefix = f">>{code}<< {prefix}"
        target = plain_code(code, codes)
    if source is not None and not is_known_language(source) and request.source_lang is not None:
        source = request.source_lang  # a group of languages, such as "ROMANCE"
    source, target = _agree(request, (source, target))
    eos = _eos_token_ids(request)
    forced = request.generation.forced_bos_token_id
    codec = MarianCodec(
        tokenizer, eos_token_id=eos[0], source_prefix=prefix, forced_prefix=() if forced is None else (forced,)
    )
    return _conventions(request, codec, source_lang=source, target_lang=target, source_prefix=prefix or None)


def _language_codes(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """Language code → token id, for tokenizers that add codes to texts."""
    if not hasattr(tokenizer, "src_lang") or not hasattr(tokenizer, "tgt_lang"):
        return {}
    stated: Mapping[str, int] | None = getattr(tokenizer, "lang_code_to_id", None)
    if stated:
        return dict(stated)
    found = {}
    for token in tokenizer.all_special_tokens:
        if match := _LANGUAGE_TOKEN.fullmatch(token):
            found[match["bare"] or match["code"]] = int(tokenizer.convert_tokens_to_ids(token))
    return found


def _multilingual(request: Request, codes: Mapping[str, int]) -> Conventions:
    tokenizer = request.tokenizer
    stated = tokenizer.init_kwargs
    source = _first(request.source_lang, stated.get("src_lang"))
    target = _first(request.target_lang, stated.get("tgt_lang"))
    if source is None or target is None:
        raise ModelError(f"{request.model} translates between many languages: set `source_lang` and `target_lang`")
    source_code = resolve_code(source, list(codes), model=request.model)
    target_code = resolve_code(target, list(codes), model=request.model)
    codec = LanguageCodeCodec(
        tokenizer,
        eos_token_id=_eos_token_ids(request)[0],
        source_code=source_code,
        target_code=target_code,
        source_prefix=request.source_prefix or "",
    )
    languages = {
        "source_lang": plain_code(source_code, list(codes)),
        "target_lang": plain_code(target_code, list(codes)),
    }
    if type(tokenizer).__name__.removesuffix("Fast") == "MBartTokenizer":
        # The first mBART starts its decoder with the target code instead of forcing it as the first token.
        return _conventions(request, codec, start_token_id=codes[target_code], forced_prefix=(), **languages)
    return _conventions(request, codec, forced_prefix=(codes[target_code],), **languages)


def _plain(request: Request) -> Conventions:
    prefix = request.source_prefix
    if prefix is None and request.source_lang is not None and request.target_lang is not None:
        prefix = _task_prefix(request)
    return _conventions(request, source_prefix=prefix)


def _task_prefix(request: Request) -> str | None:
    """The prefix of T5, such as "translate English to German: ", from the task parameters of its config."""
    tasks = getattr(request.config, "task_specific_params", None) or {}
    for name, parameters in tasks.items():
        match = re.fullmatch(r"translation_([A-Za-z-]+)_to_([A-Za-z-]+)", name)
        if match is None or "prefix" not in parameters:
            continue
        if same_language(match[1], request.source_lang or "") and same_language(match[2], request.target_lang or ""):
            return str(parameters["prefix"])
    return None
