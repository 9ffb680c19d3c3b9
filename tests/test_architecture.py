"""Rules that a reader relies on: which package may import which, which names are public, how long files are."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import nearmt

SOURCE = Path(nearmt.__file__).parent
# A package may import itself and whatever comes before it.
ORDER = [
    "errors",
    "progress",
    "outputs",
    "compiled",
    "cpus",
    "corpus",
    "markup",
    "models",
    "datastore",
    "retrieval",
    "methods",
    "decoding",
    "building",
    "translator",
    "evaluation",
    "training",
    "store",
    "documents",
    "experiments",
    "server",
    "cli",
    "__main__",
]
ONLY_IN = {
    "faiss": {"retrieval", "cli"},
    "fastapi": {"server"},
    "h11": {"server"},
    "limits": {"server"},
    "lxml": {"corpus"},
    "matplotlib": {"experiments"},
    "llvmlite": {"compiled"},
    "numba": {"compiled"},
    "onnx": {"models"},
    "onnxruntime": {"models"},
    "polib": {"corpus"},
    "prometheus_client": {"server"},
    "py3langid": {"server"},
    "pydantic": {"server"},
    "pydantic_settings": {"server"},
    "pymilvus": {"retrieval"},
    "rapidfuzz": {"markup", "retrieval"},
    "ray": {"building"},
    "rich": {"cli"},
    "sacrebleu": {"evaluation"},
    "safetensors": {"methods"},
    "sentencex": {"markup"},
    "starlette": {"server"},
    "transformers": {"models"},
    "typer": {"cli"},
    "uvicorn": {"server"},
}
STYLE_SHEETS = {"experiments/report/page.py"}  # CSS calls its variables --name


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names if node.module == "nearmt"}
    return found


def files() -> list[Path]:
    return [path for path in SOURCE.rglob("*.py") if package_of(path) != "__init__"]


def test_imports_point_downward_only():
    assert {package_of(path) for path in files()} == set(ORDER)
    for path in files():
        package = package_of(path)
        for name in imports_of(path):
            parts = name.split(".")
            if parts[0] == "nearmt" and len(parts) > 1 and parts[1] in ORDER:
                assert ORDER.index(parts[1]) <= ORDER.index(package), f"{package} imports {parts[1]}"


def test_each_library_is_imported_by_its_package_only():
    for path in files():
        for name in imports_of(path):
            allowed = ONLY_IN.get(name.split(".")[0])
            assert allowed is None or package_of(path) in allowed, f"{path} imports {name}"


def test_public_names_are_there_and_listed():
    assert nearmt.__all__ == sorted(nearmt.__all__)
    for name in nearmt.__all__:
        assert getattr(nearmt, name) is not None
    assert set(nearmt._MODULES) <= set(nearmt.__all__)


def test_files_stay_readable():
    long = {path.name: count for path in files() if (count := len(path.read_text().splitlines())) > 300}
    assert not long


def strings_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_only_the_command_line_names_options():
    """Errors of the library name fields in backticks, which the command line turns into options."""
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in files()
        if package_of(path) != "cli" and any(re.search(r"--[a-z]", text) for text in strings_of(path))
    }
    assert not found - STYLE_SHEETS


def test_every_module_has_a_docstring():
    for path in files():
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path


@pytest.mark.parametrize(
    ("given", "wanted"), [({}, "20000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, "None")]
)
def test_idle_threads_do_not_keep_the_processor_unless_the_user_wants_it(given, wanted):
    script = "import nearmt, os; print(os.environ.get('GOMP_SPINCOUNT'))"
    usual = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    found = subprocess.run([sys.executable, "-c", script], env={**usual, **given}, capture_output=True, text=True)
    assert found.stdout.strip() == wanted, found.stderr
