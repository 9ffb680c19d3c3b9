"""The type and parameters of an index in Milvus, as one string such as `milvus:HNSW,M=16,ef=256`."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from nearmt.errors import SettingError

_NAME = "milvus"
_DEFAULT = "IVF_FLAT"
# The parameters of each type, by Milvus's names, with their defaults; 0 is chosen by size or by the search.
_PARAMETERS: dict[str, dict[str, int]] = {
    "FLAT": {},
    "IVF_FLAT": {"nlist": 0},
    "IVF_SQ8": {"nlist": 0},
    "HNSW": {"M": 16, "efConstruction": 200, "ef": 256},
    "DISKANN": {"search_list": 0},
}
_OF_SEARCH = ("ef", "search_list")
_MAX_LISTS, _PER_LIST = 4096, 40


def is_milvus(factory: str | None) -> bool:
    """True if the factory string is for an index in Milvus."""
    return factory is not None and factory.partition(":")[0] == _NAME


def is_lite(uri: str) -> bool:
    """True if the address is a file of Milvus Lite, not a server."""
    return "://" not in uri


def checked_uri(uri: str) -> str:
    """An address that a manifest may store: a server without a password, or the absolute path of a file."""
    if is_lite(uri):
        if not uri.endswith(".db"):
            raise SettingError(f"{uri} is not a Milvus address: give http://host:19530, or a file that ends in .db")
        return str(Path(uri).absolute())
    try:
        parts = urlsplit(uri)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port is not False
    except ValueError:
        is_good = False
    if not is_good:
        raise SettingError(f"{uri} is not a Milvus address: give http://host:19530, or a file that ends in .db")
    if parts.username is not None or parts.password is not None:
        raise SettingError("`uri` must not contain a password, because the store saves it: set NEARMT_MILVUS_TOKEN")
    return uri


@dataclass(frozen=True)
class MilvusChoice:
    """An index type and its parameters."""

    index_type: str = _DEFAULT
    parameters: dict[str, int] = field(default_factory=dict)  # those given explicitly

    @classmethod
    def parse(cls, factory: str) -> "MilvusChoice":
        """`milvus`, `milvus:HNSW`, `milvus:IVF_FLAT,nlist=1024` …"""
        index_type, *given = (factory.partition(":")[2] or _DEFAULT).split(",")
        if index_type not in _PARAMETERS:
            raise SettingError(f"{factory}: `index` can be {', '.join(f'{_NAME}:{name}' for name in _PARAMETERS)}")
        parameters = {}
        for item in given:
            name, _, number = item.partition("=")
            if name not in _PARAMETERS[index_type] or not number.isascii() or not number.isdigit() or int(number) < 1:
                known = ", ".join(f"{name}=N" for name in _PARAMETERS[index_type]) or "no parameters"
                raise SettingError(f"{factory}: {index_type} takes {known}, not {item}")
            parameters[name] = int(number)
        return cls(index_type, parameters)

    def check(self, uri: str) -> None:
        """Refuse an index type that this Milvus does not have."""
        if is_lite(uri) and self.index_type == "DISKANN":
            raise SettingError("Milvus Lite has no DISKANN: choose another index, or a Milvus server")

    def __str__(self) -> str:
        return f"{_NAME}:{','.join([self.index_type, *(f'{name}={n}' for name, n in self.parameters.items())])}"

    def _parameter(self, name: str) -> int:
        return self.parameters.get(name, _PARAMETERS[self.index_type][name])

    def _num_lists(self, num_entries: int) -> int:
        if self.parameters.get("nlist"):
            return self.parameters["nlist"]
        lists = 1 << round(math.log2(4 * math.sqrt(max(num_entries, 1))))
        return max(1, min(lists, _MAX_LISTS, num_entries // _PER_LIST))

    def build_parameters(self, num_entries: int) -> dict[str, int]:
        """The parameters for building the index."""
        if self.index_type.startswith("IVF"):
            return {"nlist": self._num_lists(num_entries)}
        return {name: self._parameter(name) for name in _PARAMETERS[self.index_type] if name not in _OF_SEARCH}

    def search_parameters(self, num_entries: int, num_probes: int, limit: int) -> dict[str, Any]:
        """The parameters of a search. Milvus requires at least as many candidates as results."""
        if self.index_type.startswith("IVF"):
            return {"nprobe": min(num_probes, self._num_lists(num_entries))}
        return {name: max(self._parameter(name), limit) for name in _PARAMETERS[self.index_type] if name in _OF_SEARCH}
