"""Which store a request means: by name, by what its key may use, or by languages."""

from collections.abc import Sequence

from nearmt.corpus.languages import match_rank
from nearmt.server.http.auth import Caller
from nearmt.server.http.errors import ApiError
from nearmt.server.service.stores import StoreFacts, StoreRegistry


class StoreChooser:
    """Chooses among the stores that a caller may use."""

    def __init__(self, registry: StoreRegistry) -> None:
        self._shelf = registry

    def usable(self, caller: Caller) -> list[str]:
        """The names of the stores that a caller may use, its usual one first."""
        names = list(caller.stores) or self._shelf.names
        return [name for name in names if self._shelf.is_ready(name)]

    def facts(self, caller: Caller) -> list[StoreFacts]:
        return [self._shelf.facts(name) for name in self.usable(caller)]

    def named(self, caller: Caller, names: Sequence[str]) -> tuple[str, ...]:
        """These stores, if the caller may use them; stores that are searched together have one model."""
        allowed = list(caller.stores) or self._shelf.names
        for name in names:
            if name not in allowed:
                raise ApiError(404, "no_such_store", "there is no store of this name; GET /v1/stores lists them")
            self.refuse_unready(name)
        if len({id(self._shelf.engine(name)) for name in names}) > 1:
            raise ApiError(400, "different_models", "stores are used together only if they have the same model")
        if len(set(names)) < len(names):
            raise ApiError(400, "bad_request", "a store is named twice")
        return tuple(names)

    def usual(self, caller: Caller) -> str:
        """The store that a caller means who names none."""
        name = (list(caller.stores) or self._shelf.names)[0]
        self.refuse_unready(name)
        return name

    def refuse_unready(self, name: str) -> None:
        if not self._shelf.is_ready(name):
            raise ApiError(503, "loading", "the store is still being loaded: try again soon", {"Retry-After": "2"})

    def by_languages(self, caller: Caller, source: str | None, target: str | None) -> StoreFacts:
        """The first store that translates from `source` to `target`; None is any."""
        usable = self.facts(caller)
        if not usable:
            self.refuse_unready(self.usual(caller))
        ranked = [(rank, number) for number, facts in enumerate(usable) if (rank := _rank(facts, source, target)) >= 0]
        if not ranked:
            pairs = ", ".join(f"{facts.source_lang or '?'} to {facts.target_lang or '?'}" for facts in usable)
            raise ApiError(
                400, "no_such_languages", f"no store here translates from {source or 'any language'} to "
                f"{target or 'any language'}; there is {pairs}"
            )  # fmt: skip
        return usable[min(ranked)[1]]


def _rank(facts: StoreFacts, source: str | None, target: str | None) -> int:
    """How well a store's languages fit, 0 the best; -1 if they do not."""
    total = 0
    for wanted, found in ((source, facts.source_lang), (target, facts.target_lang)):
        if wanted is not None and found is not None:
            rank = match_rank(wanted, found)
            if rank is None:
                return -1
            total += rank
    return total
