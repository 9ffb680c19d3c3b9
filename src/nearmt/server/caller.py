"""Who sends a request. Used by `http`, which identifies callers, and by `service`, which acts for them."""

from dataclasses import dataclass

from nearmt.server.settings import Role


@dataclass(frozen=True)
class Caller:
    """The sender of a request."""

    name: str  # of the key, or the client's address if it sent no key
    role: Role | None
    stores: tuple[str, ...] = ()  # the stores it may use; empty means all
