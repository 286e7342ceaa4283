"""Requests made from the OpenAPI document: none is answered by a 5xx, all answers are as the document says.

TOCSIN_FUZZ_EXAMPLES: examples of each operation.
"""

from __future__ import annotations

import os

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import checks
from schemathesis.specs.openapi import checks as openapi_checks

from tocsin.remote import Remote
from tocsin.server.local import local_server
from tocsin.server.openapi import document
from tocsin.server.routes import ENDPOINTS

EXAMPLES = int(os.environ.get("TOCSIN_FUZZ_EXAMPLES", "8"))
SCHEMA = schemathesis.openapi.from_dict(document(ENDPOINTS))
CHECKS = [
    checks.not_a_server_error,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_schema_conformance,
]


@pytest.fixture(scope="module", name="url")
def _url(tmp_path_factory):
    with local_server(tmp_path_factory.mktemp("openapi")) as url, Remote(url) as remote:
        remote.define("CREATE STREAM hits RETAIN '1 hour'; CREATE TABLE t (k BIGINT, PRIMARY KEY (k))")
        remote.subscribe("SELECT * FROM hits WHERE n > 1", id=1, subscriber="ann")
        remote.subscribe("SELECT k FROM t ORDER BY k LIMIT 2", id=2)
        yield url


@SCHEMA.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
def test_answers_are_as_the_document_says(case, url):
    if case.path == "/v1/deltas":
        case.query = {**(case.query or {}), "wait": "0"}  # a poll: streams have no end
    case.headers = {**(case.headers or {}), "accept": "application/json"}
    response = case.call(base_url=url)
    case.validate_response(response, checks=CHECKS)
