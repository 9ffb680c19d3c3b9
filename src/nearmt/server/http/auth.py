"""Authentication: identifies callers by key, checks their roles and limits their rates."""

import hashlib
import hmac

from limits import parse
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter

from nearmt.server.caller import Caller
from nearmt.server.http.errors import ApiError
from nearmt.server.settings import ApiKey, Role, ServerSettings

_WRONG_KEYS = parse("30/minute")  # allowed per address
_HEADER_HINT = "send it as Authorization: Bearer KEY"


class Authenticator:
    """Checks requests against the keys in the settings."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._digests = [(_digest(key), key) for key in settings.keys]
        self._limiter = SlidingWindowCounterRateLimiter(MemoryStorage())

    def admit(self, key: str | None, address: str, role: Role) -> Caller:
        """Identify the caller; raises `ApiError` unless it has this role and keeps to its rate."""
        caller = self._identify(key, address)
        self._check_rate(caller)
        if not self.may(caller, role):
            needed = role.name.lower()
            if caller.role is None:
                raise ApiError(401, "key_needed", f"this needs a key with the role {needed}: {_HEADER_HINT}")
            has = caller.role.name.lower()
            raise ApiError(403, "not_allowed", f"the key {caller.name} has the role {has}, and this needs {needed}")
        return caller

    def _identify(self, key: str | None, address: str) -> Caller:
        if not key:
            return Caller(address, None)
        given = hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
        found: ApiKey | None = None
        for digest, known in self._digests:  # compare with all keys, so that timing reveals nothing
            if hmac.compare_digest(digest, given):
                found = known
        if found is None:
            if not self._settings.keys:
                return Caller(address, None)  # some clients always send a key, even if none is needed
            if not self._limiter.hit(_WRONG_KEYS, "wrong", address):
                raise ApiError(429, "too_many_requests", "too many wrong keys: wait a minute", {"Retry-After": "60"})
            raise ApiError(403, "wrong_key", "unknown key")
        return Caller(found.name, found.role, found.stores)

    def may(self, caller: Caller, role: Role) -> bool:
        """Whether a caller has this role."""
        if caller.role is not None:
            return caller.role >= role
        settings = self._settings
        if role == Role.TRANSLATE:
            return not settings.keys or settings.allow_translation_without_key
        return role == Role.EDIT and settings.allow_edits_without_key

    def _check_rate(self, caller: Caller) -> None:
        own = next((key.rate for key in self._settings.keys if key.name == caller.name and caller.role), None)
        rate = self._settings.limits.rate if own is None else own
        if rate and not self._limiter.hit(parse(rate), "rate", str(caller.role), caller.name):
            raise ApiError(429, "too_many_requests", f"more than {rate} requests: slow down", {"Retry-After": "1"})


def _digest(key: ApiKey) -> bytes:
    if key.key.startswith("sha256:"):
        return bytes.fromhex(key.key.removeprefix("sha256:"))
    return hashlib.sha256(key.key.encode("utf-8")).digest()
