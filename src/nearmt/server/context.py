"""What every route needs: one object on the application, and who is calling."""

from dataclasses import dataclass

from fastapi import Request

from nearmt.server.http.auth import Authenticator, Caller
from nearmt.server.http.metrics import Metrics
from nearmt.server.service.jobs import ImportJobs
from nearmt.server.service.kept_files import KeptFiles
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
    files: KeptFiles

    @classmethod
    def of(cls, request: Request) -> "Context":
        found: Context = request.app.state.context
        return found

    def admit(self, request: Request, role: Role, key: str | None = None) -> Caller:
        """The caller, if it may do this; `key` is one that came in the body or the query."""
        address = request.client.host if request.client else "unknown"
        caller = self.authenticator.admit(key or key_of_header(request), address, role)
        request.scope.setdefault("state", {})["caller"] = caller.name
        return caller


def key_of_header(request: Request) -> str | None:
    """A key in the headers, however a protocol writes it."""
    kind, _, value = request.headers.get("authorization", "").partition(" ")
    if kind.lower() in ("bearer", "deepl-auth-key") and value.strip():
        return value.strip()
    return request.headers.get("x-api-key")
