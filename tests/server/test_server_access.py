"""Access: keys, roles, the stores of a key, and rates."""

import hashlib
import shutil

import pytest

from nearmt.server.http.auth import Authenticator
from nearmt.server.http.errors import ApiError
from nearmt.server.settings import Role
from serving import KEYS, running, settings_for

UNIT = {"units": [{"source": "die zelle .", "target": "the cell ."}]}


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def locked(client, tmp_path_factory):
    copy = tmp_path_factory.mktemp("access") / "copy.store"
    shutil.copytree(client.store, copy)
    hashed = {"name": "hashed", "key": f"sha256:{hashlib.sha256(b'a hidden key').hexdigest()}", "role": "edit"}
    with running(settings_for(copy, keys=[*KEYS, hashed])) as found:
        yield found


@pytest.mark.parametrize(
    ("key", "translate", "edit", "metrics"),
    [
        ("key-to-translate", 200, 403, 403),
        ("key-to-edit-with", 200, 200, 403),
        ("key-of-the-boss", 200, 200, 200),
        ("a hidden key", 200, 200, 403),
        ("sha256:" + hashlib.sha256(b"a hidden key").hexdigest(), 403, 403, 403),
        ("wrong", 403, 403, 403),
        (None, 401, 401, 401),
    ],
)
def test_a_role_includes_the_lower_roles(locked, key, translate, edit, metrics):
    headers = bearer(key) if key else {}
    assert locked.post("/v1/translate", {"text": "zelle"}, headers=headers).status_code == translate
    assert locked.http.get("/v1/stores", headers=headers).status_code == translate
    assert locked.post("/v1/stores/client/units", UNIT, headers=headers).status_code == edit
    assert locked.http.delete("/v1/stores/client/units", params={"unit_id": "?"}, headers=headers).status_code == edit
    assert locked.http.get("/v1/jobs/none", headers=headers).status_code == (404 if edit == 200 else edit)
    assert locked.http.get("/metrics", headers=headers).status_code == metrics


def test_health_needs_no_key_and_reveals_no_store_names(locked):
    assert locked.http.get("/v1/health").status_code == 200
    assert locked.http.get("/v1/ready").json() == {"ready": True, "stores": {}}


def test_a_key_may_come_in_either_header(locked):
    assert locked.post("/v1/translate", {"text": "zelle"}, headers={"X-API-Key": "key-to-translate"}).status_code == 200
    deepl = {"Authorization": "DeepL-Auth-Key key-to-translate"}
    assert locked.post("/v1/translate", {"text": "zelle"}, headers=deepl).status_code == 200


def test_without_keys_local_clients_may_translate_but_not_edit(client):
    with running(settings_for(client.store)) as server:
        assert server.translate("zelle")
        reply = server.post("/v1/stores/client/units", UNIT)
        assert reply.status_code == 401
        message = "this needs a key with the role edit: send it as Authorization: Bearer KEY"
        assert reply.json() == {"error": {"code": "key_needed", "message": message}}
        assert server.http.get("/metrics").status_code == 200


def test_translation_without_a_key_can_be_allowed(client):
    with running(settings_for(client.store, keys=KEYS, allow_translation_without_key=True)) as server:
        assert server.translate("zelle")
        assert server.post("/v1/stores/client/units", UNIT).status_code == 401


def test_a_key_sees_its_own_stores_only(client, store_copy):
    keys = [{"name": "tenant", "key": "key-of-a-tenant", "role": "edit", "stores": ["second"]}]
    settings = settings_for(client.store, stores={"first": client.store, "second": store_copy}, keys=keys)
    with running(settings) as server:
        headers = bearer("key-of-a-tenant")
        listed = server.http.get("/v1/stores", headers=headers).json()["stores"]
        assert [(store["name"], store["is_usual"]) for store in listed] == [("second", True)]
        reply = server.post("/v1/translate", {"text": "zelle"}, headers=headers)
        assert reply.json()["stores"] == ["second"]
        for name in ("first", "none"):
            body = {"text": "zelle", "store": name}
            assert server.post("/v1/translate", body, headers=headers).json()["error"]["code"] == "no_such_store"
            assert server.post(f"/v1/stores/{name}/units", UNIT, headers=headers).status_code == 404
            assert server.http.get(f"/v1/stores/{name}", headers=headers).status_code == 404


def test_each_key_has_its_own_rate(client):
    keys = [{**KEYS[0], "rate": "3/minute"}, KEYS[1]]
    authenticator = Authenticator(settings_for(client.store, keys=keys))
    for _ in range(3):
        authenticator.admit("key-to-translate", "1.2.3.4", Role.TRANSLATE)
    with pytest.raises(ApiError, match="more than 3/minute requests") as caught:
        authenticator.admit("key-to-translate", "1.2.3.4", Role.TRANSLATE)
    assert (caught.value.status_code, caught.value.headers) == (429, {"Retry-After": "1"})
    assert authenticator.admit("key-to-edit-with", "1.2.3.4", Role.TRANSLATE).name == "editor"


def test_texts_are_logged_only_if_enabled(client, caplog):
    caplog.set_level("INFO", "nearmt.server")
    secret = "die geheime zelle ."
    with running(settings_for(client.store)) as server:
        server.translate(secret)
        server.http.get("/translate", params={"q": secret, "langpair": "de|en"})
    assert "POST /v1/translate 200" in caplog.text
    assert "geheime" not in caplog.text
    with running(settings_for(client.store, log_texts=True)) as server:
        server.translate(secret)
    assert "geheime" in caplog.text
