"""Check what the built distributions hold:  python tools/check_dist.py dist

Every file of a package's source folder must be in its wheel and its source distribution, and nothing else in the wheel:
package data that pyproject.toml forgets after a folder has moved, or tests that slip in, fail here and not at a user's.
"""

import sys
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
NEEDED_IN_SDIST = {"LICENSE", "README.md", "pyproject.toml"}


@dataclass(frozen=True)
class Distribution:
    """A distribution of this repository, and files that it could not work without."""

    folder: Path
    package: str
    needed: tuple[str, ...]  # patterns of file names, each of which some file must match

    @property
    def sources(self) -> set[str]:
        source = self.folder / "src"
        files = (path for path in (source / self.package).rglob("*") if path.is_file())
        return {path.relative_to(source).as_posix() for path in files if "__pycache__" not in path.parts}


DISTRIBUTIONS = (
    Distribution(ROOT, "nearmt", ("py.typed", "*.toml", "*.html", "*.css", "*.js")),
    Distribution(ROOT / "packages" / "nearmt-demo", "nearmt_demo", ("weights.safetensors.gz", "*.tsv.gz")),
)


def only(folder: Path, pattern: str) -> Path:
    """The one file of the folder that matches."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        sys.exit(f"{folder} must hold exactly one {pattern}, and holds {len(found)}: run make dist in a clean checkout")
    return found[0]


def problems_of_wheel(distribution: Distribution, wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as opened:
        names = {name for name in opened.namelist() if not name.endswith("/")}
        inside = next(name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(opened.read(inside).decode("utf-8"))
    installed = {name for name in names if ".dist-info/" not in name}
    found = [f"{name} is missing" for name in sorted(distribution.sources - installed)]
    found += [f"{name} does not belong there" for name in sorted(installed - distribution.sources)]
    for pattern in distribution.needed:
        if not any(PurePosixPath(name).match(pattern) for name in installed):
            found.append(f"no file matches {pattern}")
    return found + problems_of_metadata(distribution, metadata)


def problems_of_metadata(distribution: Distribution, metadata: Message) -> list[str]:
    project = tomllib.loads((distribution.folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = []
    if metadata["Requires-Python"] != project["requires-python"]:
        found.append(f"Requires-Python is {metadata['Requires-Python']}")
    if len(metadata.get_all("Project-URL", [])) != len(project["urls"]):
        found.append("its metadata lacks project URLs")
    return found


def problems_of_sdist(distribution: Distribution, sdist: Path) -> list[str]:
    with tarfile.open(sdist) as opened:
        members = [PurePosixPath(member.name) for member in opened.getmembers() if member.isfile()]
    names = {PurePosixPath(*member.parts[1:]).as_posix() for member in members}
    wanted = {f"src/{name}" for name in distribution.sources} | NEEDED_IN_SDIST
    found = [f"{name} is missing" for name in sorted(wanted - names)]
    return found + [f"{name} is a test" for name in sorted(names) if name.split("/")[0] == "tests"]


def main() -> None:
    folder = Path(sys.argv[1])
    found = []
    for distribution in DISTRIBUTIONS:
        wheel = only(folder, f"{distribution.package}-*.whl")
        sdist = only(folder, f"{distribution.package}-*.tar.gz")
        found += [f"{wheel.name}: {problem}" for problem in problems_of_wheel(distribution, wheel)]
        found += [f"{sdist.name}: {problem}" for problem in problems_of_sdist(distribution, sdist)]
        print(f"{wheel.name} and {sdist.name}: {len(distribution.sources)} files of {distribution.package}")
    if found:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
