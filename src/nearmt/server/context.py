"""The parts of a server that every route needs, stored on the application, and authentication of requests."""

from dataclasses import dataclass

from fastapi import Request

from nearmt.datastore import Filter
from nearmt.methods.registry import MethodRequest
from nearmt.server.caller import Caller
from nearmt.server.http.auth import Authenticator
from nearmt.server.http.metrics import Metrics
from nearmt.server.service.downloads import Downloads
from nearmt.server.service.jobs import ImportJobs
from nearmt.server.service.options import TranslationOptions
from nearmt.server.service.store_choice import StoreChooser
from nearmt.server.service.stores import StoreRegistry
from nearmt.server.service.translation import TranslationService
from nearmt.server.settings import Role, ServerSettings


@dataclass(frozen=True)
class Context:
    """The parts of one server."""

    settings: ServerSettings
    metrics: Metrics
    authenticator: Authenticator
    registry: StoreRegistry
    chooser: StoreChooser
    service: TranslationService
    jobs: ImportJobs
    downloads: Downloads

    @classmethod
    def of(cls, request: Request) -> "Context":
        """The context of the application that handles this request."""
        found: Context = request.app.state.context
        return found

    def admit(self, request: Request, role: Role, key: str | None = None) -> Caller:
        """Authenticate the caller and check its role and rate; `key` is a key from the body or the query."""
        address = request.client.host if request.client else "unknown"
        caller = self.authenticator.admit(key or key_from_headers(request), address, role)
        request.scope.setdefault("state", {})["caller"] = caller.name
        return caller

    def options(self, store: str, *, n_best: int = 1, only: tuple[str, ...] = ()) -> TranslationOptions:
        """Options for one store with the server's default method."""
        return TranslationOptions((store,), MethodRequest(self.settings.decoding.method), Filter(only), n_best)


def key_from_headers(request: Request) -> str | None:
    """The key in the headers, in any of the forms that the supported protocols use."""
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() in ("bearer", "deepl-auth-key") and value.strip():
        return value.strip()
    return request.headers.get("x-api-key")
