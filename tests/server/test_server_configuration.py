"""Settings: flags override the environment, which overrides TOML; errors are one sentence."""

from pathlib import Path
from typing import get_args

import pytest
from pydantic.fields import FieldInfo

from nearmt.errors import SettingError
from nearmt.methods.registry import AUTO, METHODS
from nearmt.server.configuration import load_settings
from nearmt.server.settings import ApiKey, MethodName, Role, Section, ServerSettings

FULL = """
host = "127.0.0.1"
port = 9000
allow_edits_without_key = true

[stores]
client = "client.store"
house = "/srv/house.store"

[[keys]]
name = "cat"
key = "a-key-for-the-cat-tool"
role = "edit"
stores = ["client"]

[limits]
max_texts = 7

[batching]
gather_ms = 2
"""


@pytest.fixture
def config(tmp_path):
    def write(content: str):
        path = tmp_path / "server.toml"
        path.write_text(content, encoding="utf-8")
        return path

    return write


def test_store_folders_are_relative_to_the_file(config, tmp_path):
    found = load_settings(config(FULL))
    assert found.stores["client"] == tmp_path / "client.store"
    assert str(found.stores["house"]) == "/srv/house.store"
    assert (found.port, found.limits.max_texts, found.limits.max_units) == (9000, 7, 1000)
    assert found.keys[0].role is Role.EDIT
    assert "a-key-for" not in repr(found)


def test_flags_override_the_environment_and_the_environment_overrides_the_file(config, monkeypatch, tmp_path):
    monkeypatch.setenv("NEARMT_SERVER_PORT", "9001")
    monkeypatch.setenv("NEARMT_SERVER_LIMITS__MAX_TEXTS", "8")
    found = load_settings(config(FULL))
    assert (found.port, found.limits.max_texts, found.batching.gather_ms) == (9001, 8, 2)
    found = load_settings(config(FULL), {"port": 9002, "host": None, "stores": {"client": tmp_path}})
    assert (found.port, found.host, found.stores) == (9002, "127.0.0.1", {"client": tmp_path})
    monkeypatch.setenv("NEARMT_SERVER_KEYS", '[{"name": "x", "key": "from-the-environment"}]')
    assert [key.name for key in load_settings(config(FULL)).keys] == ["x"]


STORE = "[stores]\na = 'a'\n"
KEY = f"{STORE}[[keys]]\nname='x'\n"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", r"^at least one store is needed: nearmt serve client.store$"),
        ("[stores]\n", r"at least one store is needed"),
        (f"prot = 5\n{STORE}", r"server.toml: prot is not a setting; the settings there are stores, host, port"),
        (f"{STORE}[limits]\nmax_text = 5", r"limits.max_text is not a setting; .* max_body_bytes"),
        (f"{KEY}key='12345678'\nrol='edit'", r"keys.0.rol is not a setting; .* name"),
        (f"{KEY}key='12345678'\nrole='king'", r"a role is one of translate, edit"),
        (f"{KEY}key='short'", r"keys.0.key: .*at least 8"),
        (f"{KEY}key='sha256:12'", r"64 lower-case hexadecimal digits"),
        (f"{KEY}key='12345678'\nstores=['b']", r"the store b, which the server does"),
        (f"{KEY}key='12345678'\nrate='often'", r"keys.0.rate: write a rate as"),
        (f"port = 'x'\n{STORE}", r"^port: input should be a valid integer"),
        (f"port = 99999\n{STORE}", r"^port: "),
        ("[stores]\n'../a' = 'a'", r"'../a' is not a valid store name"),
        (f"{STORE}[limits]\nrate = 'often'", r"write a rate as"),
        (f"allowed_hosts = ['a*.example']\n{STORE}", r"allowed_hosts: 'a\*.example' is not a host name"),
        (f"host = '0.0.0.0'\n{STORE}", r"0.0.0.0 can be reached from other machines: set at least one key"),
        (
            f"host = '0.0.0.0'\nallow_open_network = true\nallow_edits_without_key = true\n{STORE}",
            r"allow_edits_without_key needs a loopback address",
        ),
        ("port = ", r"server.toml is not valid TOML"),
    ],
)
def test_errors_are_one_sentence(config, content, sentence):
    with pytest.raises(SettingError, match=sentence) as caught:
        load_settings(config(content))
    assert "\n" not in str(caught.value)


def test_unknown_and_malformed_variables_are_refused(monkeypatch, tmp_path):
    flags = {"stores": {"a": tmp_path}}
    monkeypatch.setenv("NEARMT_SERVER_PROT", "1")
    with pytest.raises(SettingError, match="NEARMT_SERVER_PROT is not a setting"):
        load_settings(None, flags)
    monkeypatch.delenv("NEARMT_SERVER_PROT")
    monkeypatch.setenv("NEARMT_SERVER_LIMITS__MAX_TEXT", "1")
    with pytest.raises(SettingError, match=r"limits.max_text is not a setting"):
        load_settings(None, flags)
    monkeypatch.delenv("NEARMT_SERVER_LIMITS__MAX_TEXT")
    monkeypatch.setenv("NEARMT_SERVER_KEYS", "[{")
    with pytest.raises(SettingError, match="not valid JSON"):
        load_settings(None, flags)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(SettingError, match=r"none.toml cannot be read: no such file"):
        load_settings(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("host", "is_local"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("10.0.0.1", False)]
)
def test_loopback_addresses_are_local(host, is_local, tmp_path):
    found = load_settings(None, {"stores": {"a": tmp_path}, "host": host, "allow_open_network": True})
    assert found.is_local is is_local


def test_the_docs_describe_every_setting():
    page = (Path(__file__).parents[2] / "docs" / "server.md").read_text(encoding="utf-8")
    for name, field in ServerSettings.model_fields.items():
        if is_section(field.annotation):
            rows = [row(f"{name}.{key}", inner) for key, inner in field.annotation.model_fields.items()]
        else:
            rows = [] if name in ("stores", "keys") else [row(name, field)]  # the example shows these tables
        for expected in rows:
            assert expected in page
    for name in ApiKey.model_fields:
        assert f"    {name} = " in page, name


def row(name: str, field: FieldInfo) -> str:
    default = field.default
    if isinstance(default, bool):
        shown = str(default).lower()
    elif isinstance(default, int):
        shown = f"{default:,}".replace(",", " ") if default >= 10_000 else str(default)
    else:
        shown = "–" if default is None else "none" if default == () else str(default)
    return f"| `{name}` | {shown} | {field.description} |"


def test_methods_are_those_of_the_library():
    assert set(get_args(MethodName)) == {AUTO, *METHODS}


def is_section(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Section)
