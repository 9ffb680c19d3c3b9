"""Hostile and malformed input: each request gets a clear 4xx, and the server keeps working."""

import contextlib
import json
import socket
import threading
import time

import pytest

from serving import KEYS, Running, running, settings_for

SOURCE = "heute öffnet die tabelle die große zelle ."
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def server(client):
    limits = {"header_seconds": 0.5, "body_seconds": 0.5}
    with running(settings_for(client.store, limits=limits)) as found:
        expected = found.translate(SOURCE)
        yield found
        assert found.translate(SOURCE) == expected  # the server still works after all tests


def refused(reply, status: int, code: str) -> str:
    assert (reply.status_code, reply.json()["error"]["code"]) == (status, code), reply.text
    message = reply.json()["error"]["message"]
    assert message
    assert "Traceback" not in message
    return message


def test_a_body_of_50_mb_is_refused_with_and_without_content_length(server: Running):
    large = json.dumps({"text": "x" * 50_000_000}).encode()
    refused(server.http.post("/v1/translate", content=large, headers=JSON), 413, "too_large")
    chunks = (large[start : start + 1_000_000] for start in range(0, len(large), 1_000_000))
    refused(server.http.post("/v1/translate", content=chunks, headers=JSON), 413, "too_large")


def test_too_long_and_too_many_texts_are_refused(server: Running):
    message = refused(server.post("/v1/translate", {"text": "zelle " * 170_000}), 413, "too_long")
    assert message == "text 1 has 1020000 characters: the limit is 50000"
    refused(server.post("/v1/translate", {"text": ["x"] * 1001}), 413, "too_many_texts")
    refused(server.post("/v1/translate", {"text": ["zelle " * 8000] * 5}), 413, "too_long")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"text": "\xff\xfe"}', "bad_request"),
        (b'{"text": ', "bad_json"),
        (b"[" * 100_000, "bad_request"),
        (b"null", "bad_request"),
        (b'{"text": 5}', "bad_request"),
        (b'{"text": "a", "unknown": 1}', "bad_request"),
        (b'{"text": "a\\u0000b"}', "bad_text"),
        (b'{"text": "a\\u001b[31mb"}', "bad_text"),
        (b'{"text": "a\\ud800"}', "bad_text"),
        (b'{"text": "a", "temperature": NaN, "method": "uniform"}', "bad_request"),
        (b'{"text": "a", "k": 1' + b"0" * 5000 + b"}", "bad_request"),
        (b"", "bad_request"),
    ],
)
def test_malformed_bodies_are_refused(server: Running, body, code):
    reply = server.http.post("/v1/translate", content=body, headers=JSON)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["code"] in (code, "bad_json")


@pytest.mark.parametrize("path", ["/translate", "/detect", "/suggest", "/v2/translate"])
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", b'{"q": "\xff"'),
        ("application/json", b"[1]"),
        ("application/json", b"{" * 50_000),
        ("application/json", b'{"q": "\\ud800", "text": "\\ud800", "source": "de", "target": "en"}'),
        ("application/x-www-form-urlencoded", b"q=%ff&text=%ff&source=de&target=en&target_lang=en"),
        ("application/x-www-form-urlencoded", b"q=%00&text=%00&s=%00&source=de&target=en&target_lang=en"),
        ("multipart/form-data; boundary=x", b"--y\r\nbroken"),
        ("multipart/form-data", b"no boundary"),
        ("text/plain", b"hello"),
    ],
)
def test_the_other_apis_refuse_malformed_bodies(server: Running, path, kind, body):
    reply = server.http.post(path, content=body, headers={"Content-Type": kind})
    assert reply.status_code in (400, 403, 415), reply.text
    assert reply.json()


def test_deeply_nested_tags_are_refused(server: Running):
    deep = "<div>" * 5000 + SOURCE + "</div>" * 5000
    reply = server.post("/translate", {"q": deep, "source": "de", "target": "en", "format": "html"})
    assert reply.status_code in (400, 413)
    assert reply.json()["error"]
    refused(server.post("/v1/translate", {"text": "<b>" * 300, "format": "xml"}), 400, "too_deep")
    refused(server.post("/v1/translate", {"text": "<b>zelle", "format": "xml"}), 400, "bad_markup")


@pytest.mark.parametrize(
    "name", ["..", "../client", "%2e%2e", "client/../../etc", "client%00", "%2Fetc%2Fpasswd", "CLIENT"]
)
def test_store_names_cannot_leave_the_registry(server: Running, name):
    assert server.http.get(f"/v1/stores/{name}").status_code in (404, 405)
    assert server.post("/v1/translate", {"text": "zelle", "store": name}).status_code == 404


def test_script_in_a_segment_stays_text(store_copy):
    segment = {"source": SOURCE, "target": "<script>alert(1)</script>", "origin": "<img src=x onerror=alert(1)>"}
    with running(settings_for(store_copy, allow_edits_without_key=True)) as server:
        assert server.post("/v1/stores/client/units", {"units": [segment]}).status_code == 200
        reply = server.post("/v1/translate", {"text": SOURCE, "evidence": True})
        assert reply.headers["content-type"] == "application/json"
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in reply.headers["content-security-policy"]
        html = {"q": f"<p>{SOURCE}</p>", "source": "de", "target": "en", "format": "html"}
        assert "<script>" not in server.post("/translate", html).json()["translatedText"]


def raw(server: Running, content: bytes, seconds: float = 3) -> bytes:
    host, _, port = server.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=seconds) as connection:
        connection.sendall(content)
        found = b""
        with contextlib.suppress(ConnectionResetError):  # the server closed the connection first
            while part := connection.recv(65536):
                found += part
        return found


def test_slow_headers_close_the_connection(server: Running):
    began = time.monotonic()
    assert raw(server, b"POST /v1/translate HTTP/1.1\r\nHost: local") == b""
    assert 0.3 < time.monotonic() - began < 2.5


def test_a_slow_body_gets_408(server: Running):
    head = b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    found = raw(server, head + b"Content-Length: 100\r\n\r\n{")
    assert found.startswith(b"HTTP/1.1 408")
    assert b"too_slow" in found


def test_endless_headers_and_malformed_http_are_refused(server: Running):
    assert raw(server, b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 40_000)[:10] in (b"", b"HTTP/1.1 4")
    assert raw(server, b"\x16\x03\x01nonsense\r\n\r\n").startswith(b"HTTP/1.1 400")


def test_many_wrong_keys_get_429(client):
    with running(settings_for(client.store, keys=KEYS)) as server:
        statuses = [
            server.post("/v1/translate", {"text": "zelle"}, headers={"Authorization": f"Bearer wrong-{n}"}).status_code
            for n in range(35)
        ]
        assert statuses[0] == 403
        assert statuses[-1] == 429
        right = server.post("/v1/translate", {"text": "zelle"}, headers={"Authorization": "Bearer key-to-translate"})
        assert right.status_code == 200


def test_bad_requests_do_not_disturb_others(server: Running):
    expected = server.translate(SOURCE)
    results, stop = [], threading.Event()

    def good() -> None:
        while not stop.is_set():
            results.append(server.translate(SOURCE))

    thread = threading.Thread(target=good)
    thread.start()
    for _ in range(4):
        server.http.post("/v1/translate", content=b'{"text": "\xff', headers=JSON)
        server.post("/v1/translate", {"text": "a\0b"})
        server.post("/v1/translate", {"text": "x" * 5_000})
        server.post("/v1/translate", {"text": SOURCE, "method": "uniform", "k": 1024, "temperature": 1e-6})
    stop.set()
    thread.join()
    assert set(results) == {expected}
