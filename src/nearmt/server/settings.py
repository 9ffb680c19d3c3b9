"""The settings of a server: one frozen tree, checked before anything is loaded."""

import ipaddress
import re
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from limits import parse as parse_rate
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

MethodName = Literal["auto", "adaptive", "vanilla", "uniform", "kernel", "robust", "base"]
STORE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SHA256 = re.compile(r"sha256:[0-9a-f]{64}")
_HOST_PATTERN = re.compile(r"\*|(\*\.)?[^*]+")
_MIB = 1024 * 1024


class Role(IntEnum):
    """What a key may do; each role includes the lower ones."""

    TRANSLATE = 1
    EDIT = 2
    ADMIN = 3


def _parse_role(value: Any) -> Any:
    names = {role.name.lower(): role for role in Role}
    if isinstance(value, str):
        if value not in names:
            raise ValueError(f"a role is one of {', '.join(names)}, not {value}")
        return names[value]
    return value


def _check_rate(value: str) -> str:
    if value:
        try:
            parse_rate(value)
        except ValueError:
            raise ValueError(f'write a rate as "600/minute", or "" for no limit, not {value!r}') from None
    return value


Rate = Annotated[str, AfterValidator(_check_rate)]


class Section(BaseModel):
    """A table of the configuration. Unknown settings are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ApiKey(Section):
    """A key, in plain text or as `sha256:` followed by its hash in hexadecimal digits."""

    name: str = Field(min_length=1, description="name of the key in logs and metrics")
    key: str = Field(min_length=8, repr=False, description="the key, or sha256: and its hash")
    role: Annotated[Role, BeforeValidator(_parse_role)] = Field(Role.TRANSLATE, description="translate, edit or admin")
    stores: tuple[str, ...] = Field((), description="the stores it may use, the default first; all if empty")
    rate: Rate | None = Field(None, description="maximum rate of requests; `limits.rate` if not set")

    @field_validator("key")
    @classmethod
    def _check_key(cls, value: str) -> str:
        if value.startswith("sha256:") and not _SHA256.fullmatch(value):
            raise ValueError("sha256: must be followed by 64 lower-case hexadecimal digits")
        return value


class LimitSettings(Section):
    """Limits on single requests and on clients."""

    max_body_bytes: int = Field(default=2 * _MIB, ge=1024, description="maximum size of a request body")
    max_upload_bytes: int = Field(default=100 * _MIB, ge=1024, description="maximum size of an uploaded file")
    max_texts: int = Field(default=1000, ge=1, description="maximum number of texts in a request")
    max_characters_per_text: int = Field(default=50_000, ge=1, description="maximum length of a text in characters")
    max_characters: int = Field(default=200_000, ge=1, description="maximum total characters in a request")
    max_units: int = Field(default=1000, ge=1, description="maximum units added by one request; import a file for more")
    max_queued_sentences: int = Field(
        default=4000, ge=1, description="maximum queue length per model; beyond it the server answers 503"
    )
    max_connections: int = Field(
        default=1000, ge=1, description="maximum open connections; beyond it the server answers 503"
    )
    max_jobs: int = Field(default=100, ge=1, description="maximum number of import jobs, waiting or finished")
    time_limit_seconds: float = Field(
        default=60.0, gt=0, description="time limit for a translation; then the server answers 504"
    )
    header_seconds: float = Field(default=10.0, gt=0, description="time limit for receiving the request headers")
    body_seconds: float = Field(default=60.0, gt=0, description="time limit for receiving the request body")
    rate: Rate = Field(
        default="12000/minute",
        description='maximum rate of requests per key, or per address without keys; `""` for no limit',
    )


class BatchingSettings(Section):
    """How sentences of different requests are decoded together."""

    max_sentences: int = Field(default=32, ge=1, le=1024, description="maximum sentences in a batch")
    max_padded_characters: int = Field(
        default=16_000, ge=1, description="maximum of longest sentence × sentences in a batch"
    )
    gather_ms: float = Field(
        default=5.0, ge=0, le=1000, description="how long to wait for more sentences to fill a batch, in milliseconds"
    )


class DecodingOptions(Section):
    """Defaults for translation."""

    method: MethodName = Field(
        default="auto", description="default method; auto is the trained network with the lowest held-out loss"
    )
    beam: int = Field(default=4, ge=1, le=64, description="beam size, and the maximum of `n_best`")
    length_penalty: float = Field(
        default=0.6, gt=-100, lt=100, description="exponent of the length in the score: log-probability / length^this"
    )


class ServerSettings(Section):
    """The whole configuration."""

    stores: dict[str, Path] = Field(description="name → folder; the first store is the default")
    host: str = Field("127.0.0.1", description="address to bind to")
    port: int = Field(8080, ge=0, le=65535, description="port to bind to; 0 picks a free one")
    keys: tuple[ApiKey, ...] = Field((), description="the keys that clients may use")
    allow_edits_without_key: bool = Field(False, description="allow edits without a key, from this machine only")
    allow_translation_without_key: bool = Field(False, description="allow translation without a key if keys are set")
    allow_open_network: bool = Field(False, description="allow binding to a network address without keys")
    public_metrics: bool = Field(False, description="serve `/metrics` without a key if keys are set")
    allowed_hosts: tuple[str, ...] = Field(
        (), description="host names that clients may use for the server; `*.example.com` for subdomains, `*` for any"
    )
    cors_origins: tuple[str, ...] = Field((), description="web origins that may call the server; `*` for any")
    log_texts: bool = Field(False, description="log user texts")
    model: str | None = Field(None, description="name or folder of the stores' model, if it has changed")
    engine: Literal["torch", "int8"] | None = Field(
        None, description="engine to run the model on; the store's if not set"
    )
    device: str = Field("cpu", description="device to run the model on: cpu, cuda, cuda:1 or mps")
    dtype: Literal["float32", "float16", "bfloat16", "auto"] = Field(
        "float32", description="type of the model's weights; auto is the type in which they are stored"
    )
    offline: bool = Field(False, description="never download the model")
    threads: int | None = Field(None, ge=1, description="CPU threads for the model and the search")
    shutdown_seconds: int = Field(30, ge=0, description="time limit for finishing requests on shutdown")
    decoding: DecodingOptions = DecodingOptions()
    batching: BatchingSettings = BatchingSettings()
    limits: LimitSettings = LimitSettings()

    @field_validator("stores")
    @classmethod
    def _check_stores(cls, stores: dict[str, Path]) -> dict[str, Path]:
        if not stores:
            raise ValueError("at least one store is needed: nearmt serve client.store")
        for name in stores:
            if not STORE_NAME.fullmatch(name):
                raise ValueError(
                    f"{name!r} is not a valid store name: use letters, digits, dots, hyphens and underscores"
                )
        return stores

    @field_validator("allowed_hosts")
    @classmethod
    def _check_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not _HOST_PATTERN.fullmatch(host):
                raise ValueError(f"{host!r} is not a host name, *.example.com or *")
        return hosts

    @model_validator(mode="after")
    def _check_access(self) -> "ServerSettings":
        names = [key.name for key in self.keys]
        repeated = {name for name in names if names.count(name) > 1}
        if repeated:
            raise ValueError(f"two keys have the name {min(repeated)}")
        for key in self.keys:
            unknown = [name for name in key.stores if name not in self.stores]
            if unknown:
                raise ValueError(f"the key {key.name} names the store {unknown[0]}, which the server does not have")
        if self.allow_edits_without_key and not self.is_local:
            raise ValueError(
                f"allow_edits_without_key needs a loopback address such as 127.0.0.1 as host, not {self.host}"
            )
        if not self.is_local and not self.keys and not self.allow_open_network:
            raise ValueError(
                f"{self.host} can be reached from other machines: set at least one key, or allow it with "
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
