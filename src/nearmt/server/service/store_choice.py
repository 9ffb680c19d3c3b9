"""Selects the store for a request: by name, by language pair, or the caller's default."""

from collections.abc import Sequence

from nearmt.corpus.languages import match_rank
from nearmt.server.caller import Caller
from nearmt.server.http.errors import ApiError
from nearmt.server.service.stores import StoreFacts, StoreRegistry


class StoreChooser:
    """Selects among the stores that a caller may use."""

    def __init__(self, registry: StoreRegistry) -> None:
        self._registry = registry

    def allowed(self, caller: Caller) -> list[str]:
        """Names of the stores that a caller may use, the default first."""
        return list(caller.stores) or self._registry.names

    def facts(self, caller: Caller) -> list[StoreFacts]:
        """The loaded stores that a caller may use, the default first."""
        return [self._registry.facts(name) for name in self.allowed(caller) if self._registry.is_ready(name)]

    def by_name(self, caller: Caller, names: Sequence[str]) -> tuple[str, ...]:
        """Check that the caller may use these stores, and that they can be searched together."""
        allowed = self.allowed(caller)
        for name in names:
            if name not in allowed:
                raise ApiError(404, "no_such_store", "no such store; GET /v1/stores lists the stores")
            self.check_ready(name)
        if len({id(self._registry.runner(name)) for name in names}) > 1:
            raise ApiError(400, "different_models", "stores can be searched together only if they have the same model")
        if len(set(names)) < len(names):
            raise ApiError(400, "bad_request", "a store is named twice")
        return tuple(names)

    def default(self, caller: Caller) -> str:
        """The store for requests that name none."""
        name = self.allowed(caller)[0]
        self.check_ready(name)
        return name

    def check_ready(self, name: str) -> None:
        """Raise a 503 if the store is not loaded yet."""
        if not self._registry.is_ready(name):
            raise ApiError(503, "loading", "the store is still loading: try again soon", {"Retry-After": "2"})

    def by_languages(self, caller: Caller, source: str | None, target: str | None) -> StoreFacts:
        """The best match for a language pair, where None matches any language; of equal matches, the first."""
        usable = self.facts(caller)
        if not usable:
            self.check_ready(self.default(caller))
        ranked = [(rank, number) for number, facts in enumerate(usable) if (rank := _rank(facts, source, target)) >= 0]
        if not ranked:
            wanted = f"{source or 'any language'} to {target or 'any language'}"
            pairs = ", ".join(f"{facts.source_lang or '?'} to {facts.target_lang or '?'}" for facts in usable)
            raise ApiError(400, "no_such_languages", f"no store translates from {wanted}; available: {pairs}")
        return usable[min(ranked)[1]]


def _rank(facts: StoreFacts, source: str | None, target: str | None) -> int:
    """How well a store matches a language pair: 0 is best, -1 is no match."""
    total = 0
    for wanted, found in ((source, facts.source_lang), (target, facts.target_lang)):
        if wanted is not None and found is not None:
            rank = match_rank(wanted, found)
            if rank is None:
                return -1
            total += rank
    return total
