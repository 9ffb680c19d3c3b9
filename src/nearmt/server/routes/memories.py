"""Translation memories as the DeepL API sees them: each store is one, and so is each origin within a store."""

import uuid
from dataclasses import dataclass

from nearmt.server.caller import Caller
from nearmt.server.context import Context
from nearmt.server.http.errors import ApiError
from nearmt.server.service.stores import StoreFacts

_NAMESPACE = uuid.UUID("6f1c9d0e-53a6-5b0e-9d5e-0c7c4f2f4d11")
_ESCAPES = str.maketrans({"[": "[[]", "*": "[*]", "?": "[?]"})


@dataclass(frozen=True)
class Memory:
    """A store, or the units of one origin within it."""

    store: str
    origin: str | None
    segments: int
    facts: StoreFacts

    @property
    def id(self) -> str:
        return memory_id(self.store, self.origin)

    @property
    def name(self) -> str:
        return self.store if self.origin is None else f"{self.store}: {self.origin}"

    @property
    def origins(self) -> tuple[str, ...]:
        """The origin as a filter pattern, with wildcards escaped."""
        return () if self.origin is None else (self.origin.translate(_ESCAPES),)


def memory_id(store: str, origin: str | None) -> str:
    """A stable id: the same for the same store and origin on every server."""
    return str(uuid.uuid5(_NAMESPACE, store if origin is None else f"{store}\n{origin}"))


def list_memories(context: Context, caller: Caller) -> list[Memory]:
    """The memories that a caller may use: stores first, then origins."""
    found, parts = [], []
    for facts in context.chooser.facts(caller):
        found.append(Memory(facts.name, None, context.registry.counts(facts.name).sentences, facts))
        parts += [
            Memory(facts.name, origin.name, origin.units, facts)
            for origin in context.registry.origins(facts.name)
            if origin.name is not None
        ]
    return found + parts


def find_memory(context: Context, caller: Caller, id: str) -> Memory:
    """A memory by its id; a store also by its name."""
    for memory in list_memories(context, caller):
        if id == memory.id or (memory.origin is None and id == memory.store):
            return memory
    raise ApiError(404, "no_such_memory", "no such translation memory")
