"""The files of the page, read once: `/` and `/page/...`."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tocsin.server.problems import Problem

__all__ = ["page_routes"]

_FOLDER = Path(__file__).parent / "static"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


def page_routes() -> tuple[BaseRoute, ...]:
    """Routes of the page; its files are read now."""
    files = {path.name: _answer(path) for path in sorted(_FOLDER.iterdir()) if path.suffix in _TYPES}

    async def file(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in files:
            raise Problem(404, f"the page has no file {name[:60]!r}", hint="the page is at /")
        content, kind, tag = files[name]
        headers = {**_HEADERS, "etag": tag}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=kind, headers=headers)

    return Route("/", file), Route("/page/{name}", file)


def _answer(path: Path) -> tuple[bytes, str, str]:
    content = path.read_bytes()
    return content, _TYPES[path.suffix], f'"{sha256(content).hexdigest()[:16]}"'
