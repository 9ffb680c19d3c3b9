"""The index and training records of a manifest.

Their JSON form is part of the store's format. Optional fields are omitted while they have their default.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

LISTS = "lists"  # the kind of an index of compiled inverted lists
FLAT = "Flat"  # faiss's name for exact search
# Where neighbours are searched: among the tokens of the whole store, among those of a few sentences that are chosen for
# each source, or both.
TOKENS, SENTENCES, BOTH = RETRIEVALS = ("tokens", "sentences", "both")


@dataclass(frozen=True)
class Recall:
    """The share of the true neighbours, and of p_kNN's mass on them, that a search finds."""

    k: int
    recall: float
    mass: float
    temperature: float
    num_queries: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class IndexRecord:
    """How a store's entries are indexed."""

    kind: str  # lists, faiss or milvus
    factory: str  # lists:NUMBER, a faiss factory string, or milvus:TYPE
    num_probes: int
    num_entries: int  # entries 0 … num_entries - 1 are in the index
    files: Mapping[str, str] = field(default_factory=dict)  # name → SHA-256
    reranked: int | None = None  # candidates whose distances are computed exactly; 0 uses the index's own distances
    is_chosen: bool = True  # the factory was chosen by size, not by the user
    bytes: int | None = None
    memory: int | None = None  # the user's limit, in bytes
    mapped_bytes: tuple[int, ...] | None = None  # sizes of the parts of an index that stays on disk
    uri: str | None = None  # Milvus only, like the next three
    collection: str | None = None
    num_units: int | None = None  # units whose origins are in the collection
    num_at_making: int | None = None
    recall: Recall | None = None

    @property
    def is_milvus(self) -> bool:
        return self.kind == "milvus"

    @property
    def is_lists(self) -> bool:
        return self.kind == LISTS

    @property
    def is_flat(self) -> bool:
        return self.factory == FLAT

    def as_dict(self) -> dict[str, Any]:
        content = {name: value for name, value in asdict(self).items() if value is not None}
        if self.mapped_bytes is not None:
            content["mapped_bytes"] = list(self.mapped_bytes)
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        parts = dict(content)
        if "recall" in parts:
            parts["recall"] = Recall(**parts["recall"])
        if "mapped_bytes" in parts:
            parts["mapped_bytes"] = tuple(parts["mapped_bytes"])
        return cls(**parts)


@dataclass(frozen=True)
class SentenceIndexRecord:
    """The index of a store's source texts."""

    num_sentences: int  # sentences 0 … num_sentences - 1 are in its files
    files: Mapping[str, str]  # name → SHA-256
    bytes: int


@dataclass(frozen=True)
class RetrievalSignature:
    """Everything that the retrieved neighbours depend on that a network was trained with."""

    index: str
    num_probes: int
    reranked: int
    keys: str
    engine: str
    retrieval: str = TOKENS
    max_entries: int | None = None  # of the sentences that are searched for a source

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in asdict(self).items() if value is not None)

    def gives_same_distances(self, other: "RetrievalSignature") -> bool:
        """Exact distances do not depend on the index; approximate ones depend on every part.

        A network learns how far its neighbours usually are, which depends on where they are searched.
        """
        if (self.retrieval, self.max_entries) != (other.retrieval, other.max_entries):
            return False
        is_exact = all(one.index == FLAT or one.index.startswith(LISTS) or one.reranked for one in (self, other))
        if is_exact or self.retrieval == SENTENCES:
            return (self.keys, self.engine) == (other.keys, other.engine)
        return self == other


@dataclass(frozen=True)
class HeldOut:
    """Scores of the methods on the held-out part of the dev set. Losses are in nats per token."""

    sentences: int
    tokens: int
    decoded_sentences: int
    losses: Mapping[str, float]  # by method, "base" included
    bleu: Mapping[str, float]

    def as_dict(self) -> dict[str, Any]:
        counts = {"sentences": self.sentences, "tokens": self.tokens, "decoded_sentences": self.decoded_sentences}
        losses = {f"{name}_loss": value for name, value in self.losses.items()}
        return {**counts, **losses, **{f"{name}_bleu": value for name, value in self.bleu.items()}}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        def by_method(ending: str) -> dict[str, float]:
            return {name.removesuffix(ending): value for name, value in content.items() if name.endswith(ending)}

        return cls(
            content["sentences"],
            content["tokens"],
            content["decoded_sentences"],
            by_method("_loss"),
            by_method("_bleu"),
        )


@dataclass(frozen=True)
class TunedVanilla:
    """The best setting of vanilla kNN-MT on the dev set."""

    k: int
    temperature: float
    knn_share: float


@dataclass(frozen=True)
class TunedUniform:
    """The setting of the uniform baseline, the same as Meta-k's."""

    max_k: int
    temperature: float


@dataclass(frozen=True)
class DevSetRecord:
    """The dev set that a store was trained on."""

    origin: str
    sentences: int
    tokens: int  # trained on, without the held-out part
    dropped: Mapping[str, int] = field(default_factory=dict)  # pairs left out, by reason


@dataclass(frozen=True)
class TrainingRecord:
    """What was trained on a store, with which settings, and how well it scored."""

    method: str  # the best one
    metak: Mapping[str, Any]  # settings of the network, as in its file
    relatives: Mapping[str, Mapping[str, Any]]  # of the other networks, by method
    vanilla: TunedVanilla
    uniform: TunedUniform
    held_out: HeldOut
    tried: Mapping[str, Any]  # every setting that was decoded, with its scores
    is_selected_on_training_part: bool
    recall: Recall
    trained_on: DevSetRecord
    settings: Mapping[str, Any]
    retrieval: RetrievalSignature
    trained_at: str
    seconds: float
    networks: Mapping[str, str] = field(default_factory=dict)  # method → file
    files: Mapping[str, str] = field(default_factory=dict)  # file → SHA-256
    num_sentences: int | None = None  # in the store when it was trained

    def as_dict(self) -> dict[str, Any]:
        content = asdict(self) | {"held_out": self.held_out.as_dict()}
        content["memory"] = {"sentences": content.pop("num_sentences")}
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Ignores unknown fields, such as the `gate` of the golden store."""
        known = {item.name for item in fields(cls)}
        parts = {name: value for name, value in content.items() if name in known}
        return cls(
            **parts
            | {
                "method": parts.get("method", "adaptive"),  # the golden store has none
                "vanilla": TunedVanilla(**parts["vanilla"]),
                "uniform": TunedUniform(**parts["uniform"]),
                "held_out": HeldOut.from_dict(parts["held_out"]),
                "recall": Recall(**parts["recall"]),
                "trained_on": DevSetRecord(**parts["trained_on"]),
                "retrieval": RetrievalSignature(**parts["retrieval"]),
                "num_sentences": content.get("memory", {}).get("sentences"),
            }
        )
