"""The OpenAPI description matches what the server does, for any request."""

import shutil
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, given
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from nearmt.server.app import create_app
from nearmt.server.routes import (
    apertium,
    deepl_memories,
    deepl_translate,
    libretranslate,
    libretranslate_files,
    status,
    stores,
    translate,
)
from properties import examples
from serving import running, settings_for


@pytest.fixture(scope="module")
def server(client, tmp_path_factory):
    copy = tmp_path_factory.mktemp("openapi") / "copy.store"
    shutil.copytree(client.store, copy)
    with running(settings_for(copy, allow_edits_without_key=True, limits={"rate": ""})) as found:
        yield found


SCHEMA = schemathesis.openapi.from_dict(create_app(settings_for(Path("none.store"))).openapi())
OPERATIONS = [found.ok() for found in SCHEMA.get_all_operations()]
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@pytest.mark.hypothesis
@pytest.mark.parametrize("operation", OPERATIONS, ids=[operation.label for operation in OPERATIONS])
def test_responses_conform_to_the_description(operation, server):
    @examples(8, suppressed=tuple(HealthCheck))
    @given(case=operation.as_strategy())
    def check(case):
        if "name" in (case.path_parameters or {}):
            case.path_parameters["name"] = "client"  # a random name would always get 404
        case.validate_response(case.call(base_url=server.url), checks=CHECKS)

    check()


def test_every_route_and_every_error_is_described(server):
    described = server.http.get("/v1/openapi.json").json()
    modules = (
        apertium,
        deepl_memories,
        deepl_translate,
        libretranslate,
        libretranslate_files,
        status,
        stores,
        translate,
    )
    routers = [module.router for module in modules]
    routes = {route.path for router in routers for route in router.routes}
    assert set(described["paths"]) == routes
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], (method, path)
            success = [status for status in operation["responses"] if status.startswith("2")]
            assert success, (method, path)
    assert not [name for name in described["components"]["schemas"] if "HTTPValidationError" in name]
