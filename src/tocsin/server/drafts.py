"""Before a query is registered: it is checked, tried on rows, and there are rows to try; who may do what."""

from __future__ import annotations

from typing import Any

import msgspec

from tocsin.engine import Engine
from tocsin.errors import CatalogError, TocsinError
from tocsin.language.ddl import parse_definitions
from tocsin.model.json_rows import row_json
from tocsin.model.schema import Stream
from tocsin.server.endpoints import EndpointCall
from tocsin.server.problems import Problem, problem_of
from tocsin.server.scopes import Scope
from tocsin.server.types import Definition, Trial

__all__ = ["access", "sample", "try_query", "validate"]


async def validate(call: EndpointCall) -> Any:
    """Check a query, or definitions: what they are and warnings, or the problem."""
    sql = call.sql(call.json(Definition).sql)
    if sql.split(None, 1)[:1] and sql.split(None, 1)[0].upper() in ("CREATE", "DROP"):
        found = parse_definitions(sql)
        return {"shape": "definition", "tables": [one.name for one in found], "warnings": []}
    plan, _ = await call.hosted.read(lambda engine: engine.plan(sql))
    tables = list(dict.fromkeys(table.name for table in plan.query.tables))
    return {"shape": str(plan.shape), "tables": tables, "warnings": list(plan.warnings)}


async def try_query(call: EndpointCall) -> Any:
    """Why rows would be in the answer of a query, or not; nothing is registered or changed."""
    given = call.json(Trial)
    call.sql(given.sql)

    def read(engine: Engine) -> Any:
        plan = engine.plan(given.sql)
        return str(plan.shape), [_explained(engine, given, row) for row in given.rows]

    (shape, results), _ = await call.hosted.read(read)
    return {"shape": shape, "results": results}


def _explained(engine: Engine, given: Trial, row: dict[str, Any]) -> dict[str, Any]:
    try:
        found = engine.explain(given.sql, row, table=given.table)
    except TocsinError as error:
        return {"held": None, "checks": [], "notes": [], "problem": problem_of(error)}
    return {"held": found.held, "checks": found.to_dict()["checks"], "notes": list(found.notes)}


async def sample(call: EndpointCall) -> Any:
    """Some rows of a table, or the last events that a stream retains."""
    name, limit = call.request.path_params["relation"], call.params["limit"]

    def read(engine: Engine) -> list[dict[str, Any]]:
        try:
            relation = engine.schema(name)
        except CatalogError as error:
            raise Problem(404, error.fact, hint="GET /v1/definitions lists what there is") from None
        if isinstance(relation, Stream):
            return engine.recent(relation.name, limit)
        return list(engine.rows(relation.name, limit=limit).to_pylist())

    rows, _ = await call.hosted.read(read)
    return {"rows": [msgspec.Raw(row_json(row).encode()) for row in rows]}


async def access(call: EndpointCall) -> Any:
    """Whose token this is, and what it is for; for `admin` also the names of its tenant's tokens."""
    visit, known = call.visit, call.tenants.access
    tenant = known.tenant(visit.tenant)
    tokens = tenant.tokens if Scope.ADMIN in visit.scopes else []
    return {
        "tenant": visit.tenant,
        "scopes": sorted(visit.scopes),
        "is_open": known.is_open,
        "quota": msgspec.to_builtins(tenant.quota),
        "tokens": [{"name": token.name, "scopes": sorted(token.scopes)} for token in tokens],
    }
