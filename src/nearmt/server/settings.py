"""What an operator may set: one frozen tree, checked before anything is loaded."""

import ipaddress
import re
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from limits import parse as parse_rate
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

STORE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SHA256 = re.compile(r"sha256:[0-9a-f]{64}")
_MIB = 1024 * 1024


class Role(IntEnum):
    """What a key may do; each role includes the ones before it."""

    TRANSLATE = 1
    EDIT = 2
    ADMIN = 3


def _role(value: Any) -> Any:
    names = {role.name.lower(): role for role in Role}
    if isinstance(value, str):
        if value not in names:
            raise ValueError(f"a role is one of {', '.join(names)}, not {value}")
        return names[value]
    return value


def _rate(value: str) -> str:
    if value:
        try:
            parse_rate(value)
        except ValueError:
            raise ValueError(f'a rate is written as "600/minute", and "" is no limit; {value!r} is neither') from None
    return value


class Section(BaseModel):
    """A table of the configuration: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ApiKey(Section):
    """A key: in plain text or as `sha256:` and the hash of it in hexadecimal digits."""

    name: str = Field(min_length=1, description="how logs and metrics call its holder")
    key: str = Field(min_length=8, repr=False, description="the key, or sha256: and its hash")
    role: Annotated[Role, BeforeValidator(_role)] = Field(Role.TRANSLATE, description="translate, edit or admin")
    stores: tuple[str, ...] = Field((), description="the stores it may use, its usual one first; all if none is named")
    rate: str | None = Field(None, description="requests it may make; else limits.rate")

    @field_validator("key")
    @classmethod
    def _well_formed(cls, value: str) -> str:
        if value.startswith("sha256:") and not _SHA256.fullmatch(value):
            raise ValueError("sha256: is followed by 64 hexadecimal digits in lower case")
        return value

    @field_validator("rate")
    @classmethod
    def _known_rate(cls, value: str | None) -> str | None:
        return None if value is None else _rate(value)


class LimitSettings(Section):
    """How much one request, or one client, may ask for."""

    max_body_bytes: int = Field(default=2 * _MIB, ge=1024, description="of a request")
    max_upload_bytes: int = Field(default=100 * _MIB, ge=1024, description="of an uploaded file")
    max_texts: int = Field(default=1000, ge=1, description="texts of a request")
    max_characters_per_text: int = Field(default=50_000, ge=1, description="characters of one text")
    max_characters: int = Field(default=200_000, ge=1, description="characters of all texts of a request")
    max_units: int = Field(default=1000, ge=1, description="units added by one request; more go through an import")
    max_queued_sentences: int = Field(default=4000, ge=1, description="sentences waiting for one model; then 503")
    max_connections: int = Field(default=1000, ge=1, description="open connections; then 503")
    max_jobs: int = Field(default=100, ge=1, description="imports waiting or remembered")
    time_limit_seconds: float = Field(default=60.0, gt=0, description="for a translation; then 504")
    header_seconds: float = Field(default=10.0, gt=0, description="for a client to send its request's headers")
    body_seconds: float = Field(default=60.0, gt=0, description="for a client to send its request's body")
    rate: str = Field(
        default="12000/minute", description='requests by one key, or one address without keys; "" is no limit'
    )

    @field_validator("rate")
    @classmethod
    def _known_rate(cls, value: str) -> str:
        return _rate(value)


class BatchingSettings(Section):
    """How sentences of different requests are decoded together."""

    max_sentences: int = Field(default=32, ge=1, le=1024, description="sentences in a batch")
    max_padded_characters: int = Field(
        default=16_000, ge=1, description="longest sentence × number of sentences in a batch"
    )
    gather_ms: float = Field(default=5.0, ge=0, le=1000, description="how long to wait for company, in milliseconds")


class DecodingOptions(Section):
    """How a text is translated when a request does not say."""

    method: Literal["auto", "adaptive", "vanilla", "uniform", "kernel", "robust", "base"] = Field(
        default="auto", description="the usual method; auto is the likeliest of a store's networks"
    )
    beam: int = Field(
        default=4, ge=1, le=64, description="hypotheses kept at each step; also the most that n_best may be"
    )
    length_penalty: float = Field(default=0.6, gt=-100, lt=100, description="score is log-probability / length^this")


class ServerSettings(Section):
    """The whole configuration."""

    stores: dict[str, Path] = Field(description="name → folder; the first is the usual one")
    host: str = Field("127.0.0.1", description="the address to listen at")
    port: int = Field(8080, ge=0, le=65535, description="the port to listen at; 0 is any free one")
    keys: tuple[ApiKey, ...] = Field((), description="who may use the server")
    allow_edits_without_key: bool = Field(False, description="anyone on this machine may change the memories")
    allow_translation_without_key: bool = Field(False, description="anyone may translate although there are keys")
    allow_open_network: bool = Field(False, description="listen beyond this machine although there are no keys")
    public_metrics: bool = Field(False, description="/metrics needs no key although there are keys")
    allowed_hosts: tuple[str, ...] = Field((), description="names that clients may call the server by; * is any")
    cors_origins: tuple[str, ...] = Field((), description="web sites whose pages may call the server; * is any")
    log_texts: bool = Field(False, description="write the users' texts to the log")
    model: str | None = Field(None, description="the stores' model under another name or at another place")
    engine: Literal["torch", "int8"] | None = Field(None, description="what the model runs on; else the store's")
    offline: bool = Field(False, description="load the model only from this machine")
    threads: int | None = Field(None, ge=1, description="processor threads of the model and the search")
    shutdown_seconds: int = Field(30, ge=0, description="how long to finish what is under way when asked to stop")
    decoding: DecodingOptions = DecodingOptions()
    batching: BatchingSettings = BatchingSettings()
    limits: LimitSettings = LimitSettings()

    @field_validator("stores")
    @classmethod
    def _named_well(cls, stores: dict[str, Path]) -> dict[str, Path]:
        if not stores:
            raise ValueError("at least one store is needed: nearmt serve client.store")
        for name in stores:
            if not STORE_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is no name for a store: use letters, digits, dots, hyphens and underscores")
        return stores

    @model_validator(mode="after")
    def _safe(self) -> "ServerSettings":
        names = [key.name for key in self.keys]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(f"two keys have the name {min(twice)}")
        for key in self.keys:
            unknown = [name for name in key.stores if name not in self.stores]
            if unknown:
                raise ValueError(f"the key {key.name} names the store {unknown[0]}, which the server does not have")
        if self.allow_edits_without_key and not self.is_local:
            raise ValueError(
                f"allow_edits_without_key goes only with an address of this machine such as 127.0.0.1, not {self.host}"
            )
        if not self.is_local and not self.keys and not self.allow_open_network:
            raise ValueError(
                f"{self.host} can be reached from other machines: name at least one key, or allow it with "
                "allow_open_network = true"
            )
        return self

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the server."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False
