"""The packages of the server import each other in one direction."""

import ast
from pathlib import Path

import pytest

import nearmt.server

SERVER = Path(nearmt.server.__file__).parent
FILES = [path.relative_to(SERVER) for path in SERVER.rglob("*.py")]
SHARED = {"nearmt.errors", "nearmt.server.caller", "nearmt.server.settings"}


def imports_of(path: Path) -> set[str]:
    tree = ast.parse((SERVER / path).read_text(encoding="utf-8"))
    return {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}


@pytest.mark.parametrize("path", [path for path in FILES if path.parts[0] == "http"], ids=str)
def test_http_does_not_import_the_translation_code(path):
    ours = {name for name in imports_of(path) if name.startswith("nearmt")}
    assert {name for name in ours if not name.startswith("nearmt.server.http")} <= SHARED


@pytest.mark.parametrize("path", [path for path in FILES if path.parts[0] == "service"], ids=str)
def test_service_imports_only_errors_from_http_and_no_routes(path):
    ours = {name for name in imports_of(path) if name.startswith(("nearmt.server.http", "nearmt.server.routes"))}
    assert ours <= {"nearmt.server.http.errors"}
