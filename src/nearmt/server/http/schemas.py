"""Request and response bodies of the native API."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from nearmt.server.settings import MethodName

Name = Annotated[str, StringConstraints(min_length=1, max_length=1000)]


class Body(BaseModel):
    """A request body. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Reply(BaseModel):
    """A response body."""


class ErrorDetail(Reply):
    code: str = Field(description="error code for programs", examples=["too_long"])
    message: str = Field(description="one sentence for people")


class ErrorReply(Reply):
    error: ErrorDetail


class FilterBody(Body):
    """Restricts which part of the memory is used. Origins may contain the wildcards * and ?."""

    only: list[Name] = Field(default=[], max_length=100, description="use only segments from these origins")
    exclude: list[Name] = Field(default=[], max_length=100, description="use no segments from these origins")
    since: Name | None = Field(default=None, description="changed on or after this date", examples=["2024-05-01"])
    until: Name | None = Field(default=None, description="changed before this date", examples=["2025-01-01"])


class TranslateBody(Body):
    """One or more texts and options for their translation."""

    text: str | list[str] = Field(description="a text or a list of texts", examples=["La procuration est valable."])
    store: Name | None = Field(default=None, description="name of the store; the caller's default if not given")
    stores: list[Name] | None = Field(
        default=None, min_length=1, max_length=16, description="several stores to search together"
    )
    source: Name | None = Field(default=None, description="source language, to select a store", examples=["de"])
    target: Name | None = Field(default=None, description="target language, to select a store", examples=["en"])
    method: MethodName | None = Field(default=None, description="method; the server's default if not given")
    k: int | None = Field(default=None, ge=1, le=1024, description="number of neighbours, for vanilla and uniform")
    temperature: float | None = Field(default=None, gt=0, le=1e6, description="temperature, for vanilla and uniform")
    knn_share: float | None = Field(
        default=None, ge=0, le=1, description="weight of the retrieved distribution (λ), for vanilla"
    )
    n_best: int = Field(default=1, ge=1, le=64, description="number of translations to return, at most the beam size")
    format: Literal["text", "html", "xml"] = Field(default="text", description="html and xml keep their tags")
    split_sentences: bool = Field(default=True, description="false: translate each line as one sentence")
    filter: FilterBody | None = None
    evidence: bool = Field(default=False, description="return the evidence for each token; only with format text")


class AlternativeReply(Reply):
    text: str
    score: float | None


class TokenChoice(Reply):
    token: str
    probability: float


class SizeProbability(Reply):
    k: int = Field(description="number of neighbours; 0 is the model alone")
    probability: float


class NeighborReply(Reply):
    token: str
    weight: float = Field(description="its contribution to the probability of its token")
    squared_distance: float
    source: str
    target: str
    target_start: int = Field(description="start of the token in the target, in characters")
    target_end: int
    unit_id: str | None
    origin: str | None
    changed_at: str | None
    store: str | None = Field(default=None, description="name of its store")


class TokenReply(Reply):
    token: str
    start: int = Field(description="start of the token in the translation, in characters")
    end: int
    probability: float = Field(description="in the mixture of model and memory")
    nmt_probability: float = Field(description="in the model alone")
    nmt_share: float = Field(description="weight of the model in the mixture (1 - λ)")
    is_models_first_choice: bool
    nmt_first_choices: list[TokenChoice]
    size_probabilities: list[SizeProbability]
    neighbors: list[NeighborReply] = Field(description="nearest first")


class SentenceReply(Reply):
    source: str
    start: int = Field(description="start of its translation in the translated text, in characters")
    end: int


class TranslationReply(Reply):
    text: str
    score: float | None = Field(
        description="log-probability / length^penalty, averaged over sentences; null for html and xml"
    )
    alternatives: list[AlternativeReply] = Field(description="the next best translations, if n_best is above 1")
    sentences: list[SentenceReply] = Field(description="the sentences in order; empty for html and xml")
    tokens: list[TokenReply] | None = Field(default=None, description="the evidence, if requested")


class TranslateReply(Reply):
    translations: list[TranslationReply] = Field(description="one per text, in order")
    stores: list[str]
    method: str


class LanguagesReply(Reply):
    source: str | None
    target: str | None


class StoreReply(Reply):
    name: str
    is_usual: bool = Field(description="whether it is the caller's default store")
    languages: LanguagesReply
    sentences: int
    entries: int
    methods: list[str] = Field(description="the methods that it supports")
    created_at: str
    changed_at: str
    version: int = Field(description="increases with every change")


class StoresReply(Reply):
    may_edit: bool = Field(description="whether the caller may edit the stores")
    stores: list[StoreReply]


class OriginReply(Reply):
    name: str | None
    units: int
    first_date: str
    last_date: str


class StoreDetailReply(StoreReply):
    units: int
    model: str
    engine: str
    retrieval: str = Field(description="what is searched: sentences, tokens or both")
    index: dict[str, Any] | None = Field(
        description="type and measured recall of the index of tokens; null if there is none"
    )
    adaptation: dict[str, Any] | None = Field(description="trained settings and their losses; null if untrained")
    dropped: dict[str, int] = Field(description="pairs left out when the store was built, by reason")
    origins: list[OriginReply] = Field(description="origins of the units, the largest first")
    health: dict[str, Any] = Field(
        description="shares of removed and unindexed entries, damage to repair, and maintenance due"
    )


class UnitBody(Body):
    """A segment and its translation.

    It replaces the unit with the same unit_id, origin and source. Without a unit_id it replaces all units with the same
    origin and source.
    """

    source: Annotated[str, StringConstraints(min_length=1)]
    target: Annotated[str, StringConstraints(min_length=1)]
    unit_id: Name | None = None
    origin: Name | None = Field(default=None, description="origin of this unit; that of the request if not given")
    changed_at: Name | None = Field(
        default=None, description="ISO 8601; now if not given", examples=["2024-05-01T12:00:00Z"]
    )


class UnitsBody(Body):
    units: list[UnitBody] = Field(min_length=1)
    origin: Name | None = Field(default=None, description="origin of units that have none; api if not given")
    keep_both: bool = Field(default=False, description="keep existing translations of a source beside the new ones")


class AddedReply(Reply):
    added: int = Field(description="new sentences")
    replaced: int = Field(description="existing units or sources that got a new target")
    duplicates: int = Field(description="already stored under another unit or origin; the new unit is recorded")
    unchanged: int = Field(description="already stored under this unit")
    too_long: int = Field(description="left out because they are too long for the model")
    dropped: dict[str, int] = Field(description="left out for other reasons")
    competing: int = Field(description="added pairs whose source has a different target from another origin")
    competing_origins: list[str] = Field(description="those origins, the most frequent first")


class RemovedUnit(Reply):
    source: str
    target: str
    unit_id: str | None
    origin: str | None
    changed_at: str | None


class RemovedReply(Reply):
    units: int
    sentences: int = Field(description="sentences removed because no unit of them is left")
    removed: list[RemovedUnit] = Field(
        description="the removed units, so that you can add them again; empty if there are more than 1000"
    )


class JobReply(Reply):
    id: str
    store: str
    origin: str
    state: Literal["waiting", "running", "done", "failed"]
    done: int = Field(description="pairs processed")
    total: int | None = Field(description="pairs in the file; null until they are counted")
    added: int
    replaced: int
    duplicates: int
    unchanged: int
    too_long: int
    dropped: dict[str, int]
    error: str | None
    created_at: str
    finished_at: str | None


class HealthReply(Reply):
    status: Literal["ok"]


class ReadyReply(Reply):
    ready: bool
    stores: dict[str, Literal["ready", "loading", "failed"]]


class VersionReply(Reply):
    name: Literal["nearmt"]
    version: str
    api: Literal["v1"]
