"""Links that work in the repository, made to work on the site.

On GitHub a page of docs/ may link to any file of the repository, and a page at its top to docs/. The site has the pages
of docs/ and a few from the top of the repository; whatever else exists is linked to where the repository is hosted.
"""

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Pages at the top of the repository that the site shows too.
ROOT_PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")

_CODE = r"^(?P<fence>```+|~~~+).*?^(?P=fence)|(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)"
_LINK = re.compile(rf"{_CODE}|\]\((?P<target>[^)\s]+)", re.MULTILINE | re.DOTALL)
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|#|/")


def on_site(markdown: str, page: str, hosted_at: str) -> str:
    """The page's text with its links as the site needs them; `page` is its path in the repository."""
    folder = posixpath.dirname(page)
    site_folder = posixpath.dirname(_site_path(page))

    def replaced(found: re.Match[str]) -> str:
        target = found["target"]
        if target is None or _ELSEWHERE.match(target):
            return found[0]
        return found[0].removesuffix(target) + _relinked(target, folder, site_folder, hosted_at)

    return _LINK.sub(replaced, markdown)


def _relinked(target: str, folder: str, site_folder: str, hosted_at: str) -> str:
    path, mark, anchor = target.partition("#")
    inside = posixpath.normpath(posixpath.join(folder, path))
    if inside in ROOT_PAGES or inside.startswith("docs/"):
        return posixpath.relpath(_site_path(inside), site_folder or ".") + mark + anchor
    if not inside.startswith("..") and (ROOT / inside).exists():
        kind = "tree" if (ROOT / inside).is_dir() else "blob"
        return f"{hosted_at}/{kind}/main/{inside}{mark}{anchor}"
    return target  # mkdocs will say that it leads nowhere


def _site_path(page: str) -> str:
    return page.removeprefix("docs/")


def root_pages(read: Callable[[Path], str] = lambda path: path.read_text(encoding="utf-8")) -> dict[str, str]:
    """The pages at the top of the repository, by their names."""
    return {name: read(ROOT / name) for name in ROOT_PAGES}
