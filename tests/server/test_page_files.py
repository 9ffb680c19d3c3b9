"""The files of the web page: all are served, none refers to another site, and the security policy is strict."""

import re
from importlib.resources import files
from pathlib import Path

import pytest

from nearmt.server.routes.page_files import POLICY
from serving import running, settings_for

PAGE = Path(str(files("nearmt.server"))) / "page"
NAMES = sorted(path.name for path in PAGE.iterdir())
SCRIPTS = [name for name in NAMES if name.endswith(".js")]
FORBIDDEN = (
    "innerHTML",
    "outerHTML",
    "insertAdjacentHTML",
    "document.write",
    "DOMParser",
    "eval(",
    "new Function",
    "srcdoc",
    "localStorage",
    "document.cookie",
)


@pytest.fixture(scope="module")
def server(client):
    with running(settings_for(client.store)) as found:
        yield found


def test_all_files_are_served_with_the_security_policy(server):
    index = server.http.get("/")
    assert index.text == (PAGE / "index.html").read_text(encoding="utf-8")
    kinds = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    for name in NAMES:
        reply = server.http.get(f"/page/{name}")
        assert reply.content == (PAGE / name).read_bytes()
        assert reply.headers["content-type"].startswith(kinds[name.rpartition(".")[2]])
        assert reply.headers["content-security-policy"] == POLICY
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["x-frame-options"] == "DENY"
        assert reply.headers["referrer-policy"] == "no-referrer"
    assert server.http.head("/").status_code == 200


def test_the_policy_allows_only_the_pages_own_files():
    parts = dict(part.split(" ", 1) for part in POLICY.split("; "))
    assert parts.pop("default-src") == "'none'"
    assert "unsafe" not in POLICY
    assert {name: value for name, value in parts.items() if name.endswith("-src")} == dict.fromkeys(
        ("script-src", "style-src", "img-src", "connect-src"), "'self'"
    )
    assert parts["require-trusted-types-for"] == "'script'"


def test_the_api_has_a_stricter_policy(server):
    reply = server.http.get("/v1/health")
    assert reply.headers["content-security-policy"].startswith("default-src 'none'; frame-ancestors 'none'")
    assert "'self'" not in reply.headers["content-security-policy"]


def test_an_unchanged_file_is_not_sent_again(server):
    first = server.http.get("/page/app.js")
    assert first.headers["cache-control"] == "no-cache"
    again = server.http.get("/page/app.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "path",
    ["/page/", "/page/none.js", "/page/..%2Frun.py", "/page/%2e%2e/run.py", "/page/page/app.js", "/run.py"],
)
def test_no_other_files_can_be_reached(server, path):
    assert server.http.get(path).status_code == 404


@pytest.mark.parametrize("name", NAMES)
def test_no_file_refers_to_another_site(name):
    text = (PAGE / name).read_text(encoding="utf-8")
    found = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"')]*", text))
    assert found <= {"http://www.w3.org/2000/svg"}  # an XML namespace, not an address
    assert "@import" not in text
    assert "url(" not in text


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_never_parse_text_as_html(name):
    text = (PAGE / name).read_text(encoding="utf-8")
    assert not [word for word in FORBIDDEN if word in text]
    assert text.startswith("// ")
    assert len(text.splitlines()) <= 300


def test_scripts_import_only_what_is_exported():
    for name in SCRIPTS:
        for wanted, source in re.findall(r"import \{([^}]+)\} from \"\./([\w.]+)\"", (PAGE / name).read_text()):
            exported = set(re.findall(r"export (?:async )?(?:function|const|class) (\w+)", (PAGE / source).read_text()))
            assert {part.split(" as ")[0].strip() for part in wanted.split(",") if part.strip()} <= exported, (
                name,
                source,
            )


def test_the_html_has_no_inline_script_or_style():
    text = (PAGE / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<script[^>]*>[^<]", text) == []
    assert "<style" not in text
    assert not re.search(r"\s(style|on\w+)=", text)
    for place in re.findall(r"(?:src|href)=\"(page/[^\"]+)\"", text):
        assert (PAGE.parent / place).is_file()
    labelled = set(re.findall(r"(?:for|aria-controls|aria-labelledby|aria-describedby)=\"([\w-]+)\"", text))
    assert labelled <= set(re.findall(r"id=\"([\w-]+)\"", text))


def test_the_files_are_in_the_wheel():
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert '"server/page/*"' in text
