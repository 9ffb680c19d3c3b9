"""Which of Milvus's indexes is made and how it is searched, as one string: `milvus:HNSW,M=16,ef=256`."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from nearmt.errors import SettingError

_NAME = "milvus"
_DEFAULT = "IVF_FLAT"
# Numbers that may be given for each type, by Milvus's own names; 0 is chosen by size or by what is asked.
_NUMBERS: dict[str, dict[str, int]] = {
    "FLAT": {},
    "IVF_FLAT": {"nlist": 0},
    "IVF_SQ8": {"nlist": 0},
    "HNSW": {"M": 16, "efConstruction": 200, "ef": 256},
    "DISKANN": {"search_list": 0},
}
_OF_SEARCHING = ("ef", "search_list")
_MAX_LISTS, _PER_LIST = 4096, 40


def is_milvus(factory: str | None) -> bool:
    """Whether an index is asked for that Milvus holds."""
    return factory is not None and factory.partition(":")[0] == _NAME


def is_lite(uri: str) -> bool:
    """Whether a place is a file of Milvus Lite and not a server."""
    return "://" not in uri


def checked_uri(uri: str) -> str:
    """A place as a manifest may name it: a server without secrets, or a file by its full path."""
    if is_lite(uri):
        if not uri.endswith(".db"):
            raise SettingError(f"{uri} is no place of a Milvus: give http://host:19530, or a file that ends in .db")
        return str(Path(uri).absolute())
    try:
        parts = urlsplit(uri)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port is not False
    except ValueError:
        is_good = False
    if not is_good:
        raise SettingError(f"{uri} is no place of a Milvus: give http://host:19530, or a file that ends in .db")
    if parts.username is not None or parts.password is not None:
        raise SettingError("a password does not belong into --uri, which a store keeps: give it in NEARMT_MILVUS_TOKEN")
    return uri


@dataclass(frozen=True)
class MilvusChoice:
    """An index type and its numbers."""

    index_type: str = _DEFAULT
    numbers: dict[str, int] = field(default_factory=dict)  # only those that were given

    @classmethod
    def parse(cls, factory: str) -> "MilvusChoice":
        """`milvus`, `milvus:HNSW`, `milvus:IVF_FLAT,nlist=1024` …"""
        index_type, *given = (factory.partition(":")[2] or _DEFAULT).split(",")
        if index_type not in _NUMBERS:
            raise SettingError(f"{factory}: the index can be {', '.join(f'{_NAME}:{name}' for name in _NUMBERS)}")
        numbers = {}
        for item in given:
            name, _, number = item.partition("=")
            if name not in _NUMBERS[index_type] or not number.isascii() or not number.isdigit() or int(number) < 1:
                known = ", ".join(f"{name}=N" for name in _NUMBERS[index_type]) or "no numbers"
                raise SettingError(f"{factory}: {index_type} takes {known}, not {item}")
            numbers[name] = int(number)
        return cls(index_type, numbers)

    def check(self, uri: str) -> None:
        """Refuse what this place cannot do."""
        if is_lite(uri) and self.index_type == "DISKANN":
            raise SettingError("Milvus Lite has no DISKANN: choose another index, or a Milvus server")

    def __str__(self) -> str:
        return f"{_NAME}:{','.join([self.index_type, *(f'{name}={n}' for name, n in self.numbers.items())])}"

    def _number(self, name: str) -> int:
        return self.numbers.get(name, _NUMBERS[self.index_type][name])

    def _num_lists(self, num_entries: int) -> int:
        if self.numbers.get("nlist"):
            return self.numbers["nlist"]
        lists = 1 << round(math.log2(4 * math.sqrt(max(num_entries, 1))))
        return max(1, min(lists, _MAX_LISTS, num_entries // _PER_LIST))

    def making(self, num_entries: int) -> dict[str, int]:
        """What Milvus is told when the index is made."""
        if self.index_type.startswith("IVF"):
            return {"nlist": self._num_lists(num_entries)}
        return {name: self._number(name) for name in _NUMBERS[self.index_type] if name not in _OF_SEARCHING}

    def searching(self, num_entries: int, num_probes: int, limit: int) -> dict[str, Any]:
        """What Milvus is told with every search; it wants to look at no fewer candidates than it gives."""
        if self.index_type.startswith("IVF"):
            return {"nprobe": min(num_probes, self._num_lists(num_entries))}
        return {name: max(self._number(name), limit) for name in _NUMBERS[self.index_type] if name in _OF_SEARCHING}
