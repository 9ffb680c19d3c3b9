"""Which host names and which web sites may use the server."""

import pytest

from serving import Running, running, settings_for

SITE = "https://cat.example"
OTHER = "https://evil.example"
BODY = {"text": "zelle"}
WRONG_HOST = "this host name is not allowed: add it to allowed_hosts in the server's settings"


@pytest.fixture(scope="module")
def server(client):
    with running(settings_for(client.store)) as found:
        yield found


@pytest.fixture(scope="module")
def shared(client):
    settings = settings_for(client.store, cors_origins=[SITE], allowed_hosts=["mt.example", "*.inner.example"])
    with running(settings) as found:
        yield found


def host_status(server: Running, host: str) -> int:
    return server.http.get("/v1/health", headers={"Host": host}).status_code


@pytest.mark.parametrize("host", ["localhost", "LocalHost:80", "127.0.0.1:8080", "[::1]", "[::1]:8080"])
def test_a_local_server_accepts_local_host_names(server, host):
    assert host_status(server, host) == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "[::2]:80", "::1", "a b", ""])
def test_other_host_names_are_refused(server, host):
    assert host_status(server, host) == 400


def test_allowed_hosts_may_be_names_or_subdomains(shared):
    hosts = ["mt.example", "MT.example:443", "a.inner.example", "localhost", "www.mt.example", "inner.example"]
    assert [host_status(shared, host) for host in hosts] == [200, 200, 200, 200, 400, 400]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/translate", {"error": {"code": "wrong_host", "message": WRONG_HOST}}),
        ("/v2/translate", {"message": WRONG_HOST, "detail": "wrong_host"}),
        ("/translate", {"error": WRONG_HOST}),
    ],
)
def test_a_wrong_host_is_an_error_in_the_format_of_the_api(server, path, body):
    reply = server.post(path, BODY, headers={"Host": "evil.example"})
    assert (reply.status_code, reply.json()) == (400, body)
    assert reply.headers["x-content-type-options"] == "nosniff"


def test_writes_from_other_sites_are_refused(server, shared):
    for one in (server, shared):
        reply = one.post("/v1/translate", BODY, headers={"Origin": OTHER})
        assert (reply.status_code, reply.json()["error"]["code"]) == (403, "wrong_origin")
        assert "access-control-allow-origin" not in reply.headers
        assert one.post("/v1/translate", BODY, headers={"Origin": one.url}).status_code == 200


def test_an_allowed_site_may_read_responses_and_errors(shared):
    for body, status in ((BODY, 200), ({"text": "a\0b"}, 400), ({"text": "zelle", "store": "none"}, 404)):
        reply = shared.post("/v1/translate", body, headers={"Origin": SITE})
        assert (reply.status_code, reply.headers["access-control-allow-origin"]) == (status, SITE)
        assert "Origin" in reply.headers["vary"]


def test_an_allowed_site_may_read_internal_errors(shared, monkeypatch):
    monkeypatch.setattr(shared.context.registry, "counts", lambda name: 1 / 0)
    reply = shared.http.get("/v1/stores", headers={"Origin": SITE})
    assert (reply.status_code, reply.json()["error"]["code"]) == (500, "internal_error")
    assert reply.headers["access-control-allow-origin"] == SITE


def preflight(server: Running, origin: str):
    wanted = {"Access-Control-Request-Method": "DELETE", "Access-Control-Request-Headers": "authorization,content-type"}
    return server.http.options("/v1/stores/client/units", headers={"Origin": origin, **wanted})


def test_browsers_may_ask_before_they_send(server, shared):
    reply = preflight(shared, SITE)
    assert reply.is_success
    assert reply.headers["access-control-allow-origin"] == SITE
    assert "DELETE" in reply.headers["access-control-allow-methods"]
    assert "authorization" in reply.headers["access-control-allow-headers"].lower()
    for refused in (preflight(shared, OTHER), preflight(server, SITE)):
        assert not refused.is_success
        assert "access-control-allow-origin" not in refused.headers


def test_every_site_may_be_allowed(client):
    with running(settings_for(client.store, cors_origins=["*"])) as server:
        reply = server.post("/v1/translate", BODY, headers={"Origin": OTHER})
        assert (reply.status_code, reply.headers["access-control-allow-origin"]) == (200, "*")
        assert preflight(server, OTHER).is_success
