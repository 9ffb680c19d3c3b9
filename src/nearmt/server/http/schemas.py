"""The bodies of the native API."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

MethodChoice = Literal["auto", "adaptive", "vanilla", "uniform", "kernel", "robust", "base"]
Name = Annotated[str, StringConstraints(min_length=1, max_length=1000)]


class Body(BaseModel):
    """What a client sends: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Reply(BaseModel):
    """What the server answers."""


class ErrorDetail(Reply):
    code: str = Field(description="for machines", examples=["too_long"])
    message: str = Field(description="one sentence for people")


class ErrorReply(Reply):
    error: ErrorDetail


class FilterBody(Body):
    """Which part of the memory may be used. Names of origins may hold * and ?."""

    only: list[Name] = Field(default=[], max_length=100, description="only segments of these origins")
    exclude: list[Name] = Field(default=[], max_length=100, description="no segments of these origins")
    since: Name | None = Field(default=None, description="changed on or after this date", examples=["2024-05-01"])
    until: Name | None = Field(default=None, description="changed before this date", examples=["2025-01-01"])


class TranslateBody(Body):
    """One text or many, and how to translate them."""

    text: str | list[str] = Field(description="a text, or a list of texts", examples=["Die Tabelle ist gesperrt."])
    store: Name | None = Field(default=None, description="name of the store; else the caller's usual one")
    stores: list[Name] | None = Field(default=None, min_length=1, max_length=16, description="several stores at once")
    source: Name | None = Field(default=None, description="language of the text, to choose a store by", examples=["de"])
    target: Name | None = Field(default=None, description="language wanted, to choose a store by", examples=["en"])
    method: MethodChoice | None = Field(default=None, description="else the server's usual one")
    k: int | None = Field(default=None, ge=1, le=1024, description="neighbours, for vanilla and uniform")
    temperature: float | None = Field(default=None, gt=0, le=1e6, description="for vanilla and uniform")
    knn_share: float | None = Field(default=None, ge=0, le=1, description="the retrieved share, for vanilla")
    n_best: int = Field(default=1, ge=1, le=64, description="translations wanted, the best included; at most the beam")
    format: Literal["text", "html", "xml"] = Field(default="text", description="tags of html and xml are kept")
    split_sentences: bool = Field(default=True, description="false: each line is one sentence")
    filter: FilterBody | None = None
    evidence: bool = Field(default=False, description="why each word came out; for format text")


class AlternativeReply(Reply):
    text: str
    score: float | None


class TokenChoice(Reply):
    token: str
    probability: float


class SizeProbability(Reply):
    k: int = Field(description="so many neighbours are believed; 0 is the model alone")
    probability: float


class NeighborReply(Reply):
    token: str
    weight: float = Field(description="what it added to the probability of its token")
    squared_distance: float
    source: str
    target: str
    target_start: int = Field(description="where the token stands in the target, in characters")
    target_end: int
    unit_id: str | None
    origin: str | None
    changed_at: str | None
    store: str | None = Field(default=None, description="the store that it stands in")


class TokenReply(Reply):
    token: str
    start: int = Field(description="where the token stands in the translation, in characters")
    end: int
    probability: float = Field(description="in the mixture of model and memory")
    nmt_probability: float = Field(description="by the model alone")
    nmt_share: float = Field(description="the model's part of the mixture")
    is_models_first_choice: bool
    nmt_first_choices: list[TokenChoice]
    size_probabilities: list[SizeProbability]
    neighbors: list[NeighborReply] = Field(description="nearest first")


class SentenceReply(Reply):
    source: str
    start: int = Field(description="where its translation stands in the text, in characters")
    end: int


class TranslationReply(Reply):
    text: str
    score: float | None = Field(
        description="mean over the sentences of log-probability / length^penalty; null for html and xml"
    )
    alternatives: list[AlternativeReply] = Field(description="the next best, with n_best above 1")
    sentences: list[SentenceReply] = Field(description="plain text as it was cut up to be translated, in order")
    tokens: list[TokenReply] | None = Field(default=None, description="the evidence, if it was asked for")


class TranslateReply(Reply):
    translations: list[TranslationReply] = Field(description="one for each text, in order")
    stores: list[str]
    method: str


class LanguagesReply(Reply):
    source: str | None
    target: str | None


class StoreReply(Reply):
    name: str
    is_usual: bool = Field(description="what is used when a request names none")
    languages: LanguagesReply
    sentences: int
    entries: int
    methods: list[str] = Field(description="the methods it can be used with")
    created_at: str
    changed_at: str
    version: int = Field(description="counts the changes")


class StoresReply(Reply):
    may_edit: bool = Field(description="whether the caller may change them")
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
    index: dict[str, Any] | None = Field(description="kind of index with its measured recall; null is exact search")
    adaptation: dict[str, Any] | None = Field(description="K, T and quality of what was learned; null if untrained")
    dropped: dict[str, int] = Field(description="left out when the store was built, by reason")
    origins: list[OriginReply] = Field(description="where the segments come from, the largest first")
    health: dict[str, Any] = Field(
        description="shares removed and not indexed yet, what waits for a repair, what is due"
    )


class UnitBody(Body):
    """A segment and its translation.

    It replaces the one with the same unit_id, origin and source. Without a unit_id it replaces those with the same
    origin and source.
    """

    source: Annotated[str, StringConstraints(min_length=1)]
    target: Annotated[str, StringConstraints(min_length=1)]
    unit_id: Name | None = None
    origin: Name | None = Field(default=None, description="where it comes from; else that of the request")
    changed_at: Name | None = Field(default=None, description="ISO 8601; else now", examples=["2024-05-01T12:00:00Z"])


class UnitsBody(Body):
    units: list[UnitBody] = Field(min_length=1)
    origin: Name | None = Field(default=None, description="of units that state none; else api")
    keep_both: bool = Field(default=False, description="keep the stored translations of a source beside the new ones")


class AddedReply(Reply):
    added: int = Field(description="new sentences")
    replaced: int = Field(description="corrected: the unit, or the source, was there with another target")
    duplicates: int = Field(description="there already under another unit or origin, which is noted")
    unchanged: int = Field(description="there already under this unit")
    too_long: int = Field(description="left out because the model does not take so long a sentence")
    dropped: dict[str, int] = Field(description="left out for other reasons")
    competing: int = Field(description="added pairs whose source has another target from another origin")
    competing_origins: list[str] = Field(description="these origins, the most frequent first")


class RemovedUnit(Reply):
    source: str
    target: str
    unit_id: str | None
    origin: str | None
    changed_at: str | None


class RemovedReply(Reply):
    units: int
    sentences: int = Field(description="that no unit is left of")
    removed: list[RemovedUnit] = Field(description="what it was, to add it again; empty if more than 1000 units")


class JobReply(Reply):
    id: str
    store: str
    origin: str
    state: Literal["waiting", "running", "done", "failed"]
    done: int = Field(description="pairs worked off")
    total: int | None = Field(description="pairs in all, once they are counted")
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
