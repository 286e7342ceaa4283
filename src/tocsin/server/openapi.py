"""The OpenAPI document, made from the table of routes."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

from tocsin.server.endpoints import Endpoint, Param
from tocsin.server.types import ProblemBody, described

__all__ = ["document"]

_TYPES = {int: "integer", float: "number", bool: "boolean", str: "string"}
_ALWAYS = (400, 401, 403, 413, 429, 503)


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The document of these routes."""
    used = [
        ProblemBody,
        *(t for e in endpoints for taken in [*e.takes.values(), e.answer] for t in _several(taken)),
    ]
    schemas, components = described(used)
    by_type = {str(type): schema for type, schema in zip(used, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, by_type)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tocsin",
            "version": version("tocsin"),
            "description": "Standing SQL queries over streams and tables: register, publish, follow.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _several(type: Any) -> tuple[Any, ...]:
    """The types of a body: one, or alternatives; a schema or nothing has none."""
    if type is None or isinstance(type, dict):
        return ()
    return type if isinstance(type, tuple) else (type,)


def _operation(endpoint: Endpoint, by_type: dict[str, Any]) -> dict[str, Any]:
    def schema(type: Any) -> Any:
        if isinstance(type, dict):
            return type
        several = [by_type[str(one)] for one in _several(type)]
        return several[0] if len(several) == 1 else {"anyOf": several}

    answer = {} if endpoint.answer is None else {"schema": schema(endpoint.answer)}
    content = {
        media: answer if media == "application/json" else {"schema": {"type": "string"}}
        for media in endpoint.media
    }
    problem = {"content": {"application/problem+json": {"schema": by_type[str(ProblemBody)]}}}
    statuses = sorted({*_ALWAYS, *endpoint.problems})
    out: dict[str, Any] = {
        "operationId": f"{endpoint.method.lower()}_{endpoint.handler.__name__}",
        "summary": endpoint.summary,
        "parameters": [_parameter(param) for param in endpoint.params],
        "responses": {
            str(endpoint.status): {"description": "Done.", "content": content},
            **{str(s): {"description": HTTPStatus(s).phrase, **problem} for s in statuses},
        },
    }
    if endpoint.description:
        out["description"] = endpoint.description
    if endpoint.takes:
        out["requestBody"] = {
            "required": True,
            "content": {media: {"schema": schema(type)} for media, type in endpoint.takes.items()},
        }
    return out


def _parameter(param: Param) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": _TYPES[param.type]}
    limits = {"minimum": param.least, "maximum": param.most, "maxLength": param.max_length}
    schema |= {name: value for name, value in limits.items() if value is not None}
    if param.choices:
        schema["enum"] = list(param.choices)
    if param.default is not None:
        schema["default"] = param.default
    where = {"name": param.name, "in": param.where, "required": param.where == "path"}
    return {**where, "description": param.description, "schema": schema}
