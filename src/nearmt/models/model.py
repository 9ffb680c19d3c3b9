"""`Seq2Seq`: a translation model with its tokenizer, from token ids to decoder states and logits.

The model is frozen, its dropout is off, and it keeps nothing of a request, so one object serves many threads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedModel

from nearmt.errors import ModelError
from nearmt.models.capture import find_projection
from nearmt.models.engine import DecodingSession, Engine
from nearmt.models.engine_choice import choose_engine
from nearmt.models.families import Conventions, Request, establish_conventions
from nearmt.models.identity import ModelIdentity, fingerprint_tokenizer, fingerprint_weights
from nearmt.models.loading import load_files, quiet
from nearmt.models.logit_rules import DecodingRules
from nearmt.models.torch_engine import TorchEngine

NO_LIMIT = 1_000_000  # tokens, for models without absolute positions


@dataclass(frozen=True)
class ForcedTokens:
    """The kept positions of a force-decoded batch, flattened by row, then by position."""

    states: torch.Tensor  # (n, width) float32: the input of the output projection
    token_ids: torch.Tensor  # (n,) int64: the reference token that came next
    rows: torch.Tensor  # (n,) the pair in the batch
    positions: torch.Tensor  # (n,) position in the target; 0 is the first after the forced prefix


class Seq2Seq:
    """A frozen translation model with its tokenizer, for one pair of languages."""

    def __init__(
        self, model: PreTrainedModel, conventions: Conventions, identity: ModelIdentity, engine: TorchEngine
    ) -> None:
        self.identity = identity
        self.source_lang = conventions.source_lang
        self.target_lang = conventions.target_lang
        self.source_prefix = conventions.source_prefix
        self.start_token_id = conventions.start_token_id
        self.eos_token_ids = conventions.eos_token_ids
        self.forced_prefix = conventions.forced_prefix
        self.unknown_token_id = conventions.unknown_token_id
        self.width = identity.width
        self.dtype = str(model.dtype).removeprefix("torch.")  # of the loaded weights
        self.vocabulary_size = engine.projection.weight.shape[0]
        self.max_source_tokens, self.max_target_tokens = _position_limits(model)
        self.rules = DecodingRules(
            model.generation_config, eos_token_ids=self.eos_token_ids, forced_prefix=self.forced_prefix
        )
        self._engine: Engine = engine
        self._codec = conventions.codec
        self._pad_token_id = conventions.pad_token_id

    @classmethod
    def load(
        cls,
        model: str | Path,
        *,
        revision: str | None = None,
        device: str = "cpu",
        dtype: str = "float32",
        source_lang: str | None = None,
        target_lang: str | None = None,
        source_prefix: str | None = None,
        offline: bool = False,
        engine: str = "auto",
    ) -> "Seq2Seq":
        """Load a hub id or a folder; `offline` uses only files that are already on this machine.

        Languages are codes such as "de", "de-DE" or the model's own; a model for one pair needs none.
        `engine`: "torch" runs any model; "int8" runs some families on a CPU, much faster; "auto" is int8 if it is known
        to be faster. `dtype`: "float32", "float16", "bfloat16", or "auto" for the type of the stored weights. A child
        process tests whether the processor can compute in a 16-bit type; if not, the model runs in float32 and a
        warning is logged.
        """
        name = str(model)
        files = load_files(name, revision=revision, device=device, dtype=dtype, offline=offline)
        conventions = establish_conventions(
            Request(
                model=name,
                tokenizer=files.tokenizer,
                config=files.config,
                generation=files.model.generation_config,
                source_lang=source_lang,
                target_lang=target_lang,
                source_prefix=source_prefix,
            )
        )
        layer, projection = find_projection(files.model)
        identity = ModelIdentity(
            name=name,
            revision=files.revision,
            architecture=type(files.model).__name__,
            weights=fingerprint_weights(files.weight_files),
            tokenizer=fingerprint_tokenizer(files.tokenizer_files),
            key_layer=f"input of {layer}",
            width=projection.weight.shape[1],
        )
        plain = TorchEngine(files.model, projection)
        loaded = cls(files.model, conventions, identity, plain)
        try:
            with quiet():
                probe = loaded._probe()
                if not plain.projects_as_the_model(*probe):
                    raise ModelError(
                        f"{name} ({identity.architecture}) changes its logits after the output projection, which nearmt"
                        " does not support"
                    )
                plain.try_sharing_sources(*probe)
        except (RuntimeError, ValueError, TypeError, AttributeError, IndexError, AssertionError) as error:
            raise ModelError(f"{name} ({identity.architecture}) cannot be decoded step by step: {error}") from error
        loaded._engine = choose_engine(engine, plain, name, probe, is_fallback=files.is_fallback)
        return loaded

    def __repr__(self) -> str:
        languages = f"{self.source_lang or '?'}→{self.target_lang or '?'}"
        return f"Seq2Seq({self.identity.name!r}, {self.identity.architecture}, {languages}, width={self.width})"

    @property
    def engine(self) -> str:
        """The engine that runs the model: "torch", or "int8", whose states differ a little."""
        return self._engine.name

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return self._engine.device

    def tokenize_sources(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids with the special tokens that the encoder expects; never truncated."""
        return self._codec.encode_sources(texts)

    def tokenize_targets(self, texts: Sequence[str]) -> list[list[int]]:
        """Content ids and EOS, without decoder start and forced prefix; never truncated."""
        return self._codec.encode_targets(texts)

    def kept_positions(self, target: Sequence[int]) -> list[int]:
        """The positions of a target that become entries of a store: all except unknown and padding tokens."""
        dropped = {self.unknown_token_id, self._pad_token_id} - set(self.eos_token_ids)
        return [position for position, token in enumerate(target) if token not in dropped]

    def detokenize(self, token_ids: Sequence[Sequence[int]]) -> list[str]:
        """Plain texts without special tokens."""
        return self._codec.decode(token_ids)

    def token_texts(self, token_ids: Sequence[int]) -> list[str]:
        """One printable subword piece per target id, with the tokenizer's mark of a word's start or end."""
        return self._codec.pieces(token_ids)

    def project(self, states: torch.Tensor) -> torch.Tensor:
        """The model's logits (n, vocabulary) of states (n, width): float32, with every bias."""
        return self._engine.project(states)

    def force_decode(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], *, keep_unknown: bool = False
    ) -> ForcedTokens:
        """The states before every kept target token, and these tokens.

        Sources and targets are the ids of `tokenize_sources` and `tokenize_targets`.
        """
        if len(sources) != len(targets):
            raise ValueError(f"{len(sources)} sources but {len(targets)} targets")
        skip = len(self.forced_prefix)
        inputs = [[self.start_token_id, *self.forced_prefix, *target][: skip + len(target)] for target in targets]
        self._check_lengths(inputs, self.max_target_tokens, "target")
        source_ids, source_mask = self._pad_sources(sources)
        decoder_ids, _ = self._pad(inputs)
        kept = [list(range(len(t))) if keep_unknown else self.kept_positions(t) for t in targets]
        rows = torch.tensor([row for row, found in enumerate(kept) for _ in found], dtype=torch.int64)
        positions = torch.tensor([position for found in kept for position in found], dtype=torch.int64)
        golden = [target[position] for target, found in zip(targets, kept, strict=True) for position in found]
        states = self._engine.force(source_ids, source_mask, decoder_ids)
        picked = states[rows.to(self.device), positions.to(self.device) + skip]
        return ForcedTokens(
            states=picked.float(),  # a normal tensor, because it was indexed outside inference mode
            token_ids=torch.tensor(golden, dtype=torch.int64, device=self.device),
            rows=rows.to(self.device),
            positions=positions.to(self.device),
        )

    def start_decoding(self, sources: Sequence[Sequence[int]]) -> DecodingSession:
        """Run the encoder for these sources and prepare the first step."""
        source_ids, source_mask = self._pad_sources(sources)
        return self._engine.start(source_ids, source_mask)

    def _pad_sources(self, sources: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        self._check_lengths(sources, self.max_source_tokens, "source")
        return self._pad(sources)

    def _check_lengths(self, sequences: Sequence[Sequence[int]], limit: int, side: str) -> None:
        if not sequences:
            raise ValueError("an empty batch cannot be decoded")
        longest = max(map(len, sequences))
        if longest > limit:
            raise ModelError(f"a {side} of {longest} tokens is too long for the model, which has {limit} positions")

    def _pad(self, sequences: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Right-padded ids and their mask, both (rows, time)."""
        time = max(1, max(map(len, sequences)))
        padded = [[*sequence, *[self._pad_token_id] * (time - len(sequence))] for sequence in sequences]
        mask = [[1] * len(sequence) + [0] * (time - len(sequence)) for sequence in sequences]
        return torch.tensor(padded, device=self.device), torch.tensor(mask, device=self.device)

    def _probe(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Ids and mask of two tiny sources of different length, and their first decoder inputs."""
        ordinary = min(self.vocabulary_size - 1, max(self.eos_token_ids) + 5)
        sources = [[ordinary, self.eos_token_ids[0]], [ordinary, ordinary - 1, ordinary, self.eos_token_ids[0]]]
        return *self._pad_sources(sources), torch.tensor([self.start_token_id] * 2, device=self.device)


def _position_limits(model: PreTrainedModel) -> tuple[int, int]:
    """The number of positions of encoder and decoder; a large number if positions are relative."""
    config = model.config
    limits = []
    for side in ("encoder", "decoder"):
        own = getattr(config, side, None) or config
        stated = getattr(own, f"max_{side}_position_embeddings", None) or getattr(own, "max_position_embeddings", None)
        limits.append(int(stated) if stated else NO_LIMIT)
    return limits[0], limits[1]
