"""Errors that clients see: in the format of the API, and without paths of the server."""

import io

import pytest

from nearmt.errors import (
    IndexUnavailableError,
    MissingExtraError,
    ModelError,
    NearMTError,
    OutputError,
    SettingError,
    StoreDamagedError,
    StoreMismatchError,
)
from nearmt.server.routes import libretranslate_files
from serving import Running, running, settings_for

SECRET = "/srv/secret/place"


@pytest.fixture
def server(store_copy):
    with running(settings_for(store_copy, allow_edits_without_key=True)) as found:
        yield found


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (MissingExtraError("this format", "nearmt[extra]"), 501),
        (OutputError(f"{SECRET} is full"), 500),
        (NearMTError(f"{SECRET} is broken"), 500),
        (RuntimeError(f"{SECRET} is broken"), 500),
    ],
)
def test_translating_a_file_reports_any_error(server: Running, monkeypatch, error, status):
    def fail(*arguments):
        raise error

    monkeypatch.setattr(libretranslate_files, "translate_document", fail)
    fields, file = {"source": "de", "target": "en"}, {"file": ("a.po", b"")}
    reply = server.http.post("/translate_file", data=fields, files=file)
    assert (reply.status_code, list(reply.json())) == (status, ["error"])
    assert "secret" not in reply.text
    assert ("nearmt[extra]" in reply.text) == (status == 501)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (StoreDamagedError(f"{SECRET}/keys is cut short"), 500, "store_damaged"),
        (StoreMismatchError(f"it was built with {SECRET}"), 409, "store_mismatch"),
        (ModelError(f"the store's model is no longer at {SECRET}"), 500, "internal_error"),
        (IndexUnavailableError(f"{SECRET} does not answer"), 503, "index_unavailable"),
    ],
)
def test_errors_of_the_server_are_logged_and_do_not_reveal_paths(
    server: Running, monkeypatch, caplog, error, status, code
):
    (runner,) = server.context.registry.runners

    def fail(options, texts, wants_evidence):
        raise error

    monkeypatch.setattr(runner.batcher, "_decode", fail)
    reply = server.post("/v1/translate", {"text": "zelle"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (status, code)
    assert "secret" not in reply.text
    assert SECRET in caplog.text


def test_errors_name_a_store_and_not_its_folder(server: Running, store_copy):
    error = SettingError(f"{store_copy} is not trained; see {store_copy}-2/x")
    names = {store_copy.with_name(f"{store_copy.name}-2"): "upload.tmx"}
    found = server.context.registry.public_error(error, names)
    assert (found.status_code, found.message) == (400, "client is not trained; see upload.tmx/x")


def test_an_import_that_crashes_is_logged_and_does_not_reveal_paths(server: Running, monkeypatch, caplog):
    from test_server_native import finished

    def fail(*arguments):
        raise RuntimeError(f"{SECRET} is broken")

    monkeypatch.setattr(server.context.registry, "add", fail)
    file = {"file": ("a.tsv", io.BytesIO(b"eins\tone\n"))}
    job = finished(server, server.http.post("/v1/stores/client/import", files=file).json()["id"])
    assert (job["state"], job["error"]) == ("failed", "internal error: see the server's log")
    assert SECRET in caplog.text
