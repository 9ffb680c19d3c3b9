"""The OpenAPI description is true: what it says is what the server does, whatever it is sent."""

import shutil

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import checks

from nearmt.server import (
    apertium,
    deepl_memories,
    deepl_translate,
    libretranslate,
    native_status,
    native_stores,
    native_translate,
)
from serving import running, settings_for


@pytest.fixture(scope="module")
def server(client, tmp_path_factory):
    copy = tmp_path_factory.mktemp("openapi") / "copy.store"
    shutil.copytree(client.store, copy)
    with running(settings_for(copy, allow_edits_without_key=True, limits={"rate": ""})) as found:
        yield found


@pytest.fixture
def described(server):
    return schemathesis.openapi.from_url(f"{server.url}/v1/openapi.json")


schema = schemathesis.pytest.from_fixture("described")
CHECKS = [
    checks.not_a_server_error,
    schemathesis.specs.openapi.checks.status_code_conformance,
    schemathesis.specs.openapi.checks.content_type_conformance,
    schemathesis.specs.openapi.checks.response_schema_conformance,
]


@schema.parametrize()
@settings(
    max_examples=12, derandomize=True, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)  # fmt: skip
def test_whatever_is_sent_the_answer_is_as_described(case):
    case.call_and_validate(checks=CHECKS)


def test_every_route_and_every_error_is_described(server):
    described = server.http.get("/v1/openapi.json").json()
    routers = [found.router for found in (apertium, deepl_memories, deepl_translate, libretranslate, native_status,
                                          native_stores, native_translate)]  # fmt: skip
    routes = {route.path for router in routers for route in router.routes}
    assert set(described["paths"]) == routes
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], (method, path)
            success = [status for status in operation["responses"] if status.startswith("2")]
            assert success, (method, path)
    assert not [name for name in described["components"]["schemas"] if "HTTPValidationError" in name]
