"""Converts texts to token ids and back: one class for each way in which tokenizers treat source and target.

A transformers tokenizer switches between source and target mode in place, so every call holds a lock.
"""

import threading
from collections.abc import Sequence
from typing import Any, Protocol

from transformers import PreTrainedTokenizerBase


class TextCodec(Protocol):
    """What a model needs from a tokenizer."""

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids with the special tokens that the encoder expects."""

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        """Content ids and EOS, without decoder start and forced prefix."""

    def decode(self, token_ids: Sequence[Sequence[int]]) -> list[str]:
        """Plain texts without special tokens."""

    def pieces(self, token_ids: Sequence[int]) -> list[str]:
        """One printable subword piece per id, with the mark of a word's start or end."""


class PlainCodec:
    """A tokenizer that treats source and target the same, special tokens included: T5, BART, Marian."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        eos_token_id: int,
        source_prefix: str = "",
        forced_prefix: Sequence[int] = (),
    ) -> None:
        self._tokenizer = tokenizer
        self._eos = eos_token_id
        self._source_prefix = source_prefix
        self._forced_prefix = list(forced_prefix)
        self._lock = threading.Lock()

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids with the special tokens that the encoder expects."""
        return self._call(text=[self._source_prefix + text for text in texts])

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        """Content ids and EOS, without decoder start and forced prefix."""
        return [self._trim(ids) for ids in self._call(text_target=list(texts))]

    def _trim(self, token_ids: list[int]) -> list[int]:
        start = len(self._forced_prefix)
        if start and token_ids[:start] == self._forced_prefix:
            token_ids = token_ids[start:]
        return token_ids if token_ids[-1:] == [self._eos] else [*token_ids, self._eos]

    def _call(self, **texts: list[str]) -> list[list[int]]:
        if not any(texts.values()):
            return []
        with self._lock:
            # verbose=False: no warning about long texts, because the caller checks their length
            return list(self._tokenizer(**texts, padding=False, truncation=False, verbose=False)["input_ids"])

    def decode(self, token_ids: Sequence[Sequence[int]]) -> list[str]:
        """Plain texts without special tokens."""
        with self._lock:
            return [self._decode_one(list(ids)) for ids in token_ids]

    def _decode_one(self, token_ids: list[int]) -> str:
        return str(self._tokenizer.decode(token_ids, skip_special_tokens=True)).strip()

    def pieces(self, token_ids: Sequence[int]) -> list[str]:
        """One printable subword piece per id, with the mark of a word's start or end."""
        with self._lock:
            return [str(piece) for piece in self._tokenizer.convert_ids_to_tokens(list(token_ids))]


class MarianCodec(PlainCodec):
    """Marian: one SentencePiece model for each side; the output is decoded with that of the target."""

    def _decode_one(self, token_ids: list[int]) -> str:
        text = self._tokenizer.decode(token_ids, skip_special_tokens=True, use_source_tokenizer=False)
        return str(text).strip()


class LanguageCodeCodec(PlainCodec):
    """M2M100, NLLB, mBART: the tokenizer adds language codes to the text; targets are only content and EOS."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        eos_token_id: int,
        source_code: str,
        target_code: str,
        source_prefix: str = "",
    ) -> None:
        super().__init__(tokenizer, eos_token_id=eos_token_id, source_prefix=source_prefix)
        tokenizer.src_lang = source_code
        tokenizer.tgt_lang = target_code

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        """Content ids and EOS, without the target's language code."""
        if not texts:
            return []
        with self._lock:
            encoded = self._tokenizer(
                text_target=list(texts), add_special_tokens=False, padding=False, truncation=False, verbose=False
            )
        return [[*ids, self._eos] for ids in encoded["input_ids"]]


class FairseqCodec(PlainCodec):
    """FSMT: a vocabulary and Moses rules for each language.

    The tokenizer of transformers encodes every text with the source vocabulary. This class encodes targets with the
    target vocabulary, whose ids the decoder uses.
    """

    def __init__(self, tokenizer: Any, *, eos_token_id: int, source_prefix: str = "") -> None:
        super().__init__(tokenizer, eos_token_id=eos_token_id, source_prefix=source_prefix)
        self._target_pieces: dict[int, str] = dict(tokenizer.decoder)
        self._target_ids = {piece: token for token, piece in self._target_pieces.items()}
        self._unknown = self._target_ids[tokenizer.unk_token]
        names = (tokenizer.unk_token, tokenizer.bos_token, tokenizer.sep_token, tokenizer.pad_token)
        self._special = {self._target_ids[name] for name in names if name in self._target_ids}

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of the target vocabulary, and EOS."""
        with self._lock:
            return [[*self._encode_target(text), self._eos] for text in texts]

    def _encode_target(self, text: str) -> list[int]:
        tokenizer: Any = self._tokenizer
        if tokenizer.do_lower_case:
            text = text.lower()
        words = tokenizer.moses_tokenize(tokenizer.moses_pipeline(text, tokenizer.tgt_lang), tokenizer.tgt_lang)
        pieces = [piece for word in words if word for piece in tokenizer.bpe(word).split(" ")]
        return [self._target_ids.get(piece, self._unknown) for piece in pieces]

    def _decode_one(self, token_ids: list[int]) -> str:
        pieces = [self._piece(token) for token in token_ids if token not in self._special]
        return str(self._tokenizer.convert_tokens_to_string(pieces)).strip() if pieces else ""

    def pieces(self, token_ids: Sequence[int]) -> list[str]:
        """One piece of the target vocabulary per id; "</w>" marks the end of a word."""
        return [self._piece(token) for token in token_ids]

    def _piece(self, token: int) -> str:
        return self._target_pieces.get(token, self._target_pieces[self._unknown])
