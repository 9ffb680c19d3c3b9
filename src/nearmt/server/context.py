"""What every route needs: one object on the application, and who is calling."""

from dataclasses import dataclass

from fastapi import Request

from nearmt.server.access import Caller, Gatekeeper
from nearmt.server.jobs import ImportJobs
from nearmt.server.kept_files import KeptFiles
from nearmt.server.metrics import Metrics
from nearmt.server.selection import StoreChooser
from nearmt.server.settings import Role, ServerSettings
from nearmt.server.stores import Shelf
from nearmt.server.translation import TranslationDesk


@dataclass(frozen=True)
class Context:
    """The parts of one server."""

    settings: ServerSettings
    metrics: Metrics
    gatekeeper: Gatekeeper
    shelf: Shelf
    chooser: StoreChooser
    desk: TranslationDesk
    jobs: ImportJobs
    files: KeptFiles

    @classmethod
    def of(cls, request: Request) -> "Context":
        found: Context = request.app.state.context
        return found

    def admit(self, request: Request, role: Role, key: str | None = None) -> Caller:
        """The caller, if it may do this; `key` is one that came in the body or the query."""
        address = request.client.host if request.client else "unknown"
        caller = self.gatekeeper.admit(key or key_of_header(request), address, role)
        request.scope.setdefault("state", {})["caller"] = caller.name
        return caller


def key_of_header(request: Request) -> str | None:
    """A key in the headers, however a protocol writes it."""
    kind, _, value = request.headers.get("authorization", "").partition(" ")
    if kind.lower() in ("bearer", "deepl-auth-key") and value.strip():
        return value.strip()
    return request.headers.get("x-api-key")
