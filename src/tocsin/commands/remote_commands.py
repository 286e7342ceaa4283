"""The commands that talk to a server: `tocsin publish`, `subscribe`, `follow`, `content`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tocsin.commands.output import print_json, read_text, report_errors
from tocsin.commands.subscription_commands import Json
from tocsin.errors import UsageError

if TYPE_CHECKING:
    from tocsin.remote import Remote, RemoteMessage

__all__ = ["add_remote_commands"]

Server = Annotated[
    str, typer.Option("--server", help="The server's address.", envvar="TOCSIN_SERVER", show_default=True)
]
Token = Annotated[
    str | None, typer.Option("--token", help="A token of a tenant.", envvar="TOCSIN_TOKEN", show_envvar=True)
]
Subscriber = Annotated[str | None, typer.Option(help="The name of a subscriber.")]
_HERE = "http://127.0.0.1:7780"


def add_remote_commands(app: typer.Typer) -> None:
    """Add them to an app."""
    for command in (publish, subscribe, follow, content):
        app.command(command.__name__)(command)


@contextmanager
def _remote(server: str, token: str | None, as_json: bool = False) -> Iterator[Remote]:
    """A client; errors are reported, a missing dependency says what to install."""
    with report_errors(as_json):
        try:
            from tocsin.remote import Remote
        except ModuleNotFoundError as error:
            raise ImportError(f"{error}; install tocsin[remote]") from None
        with Remote(server, token) as remote:
            yield remote


def publish(
    relation: Annotated[str, typer.Argument(help="A stream or table.")],
    rows: Annotated[str, typer.Argument(help="A JSON object, a file of JSON lines, or - for stdin.")],
    op: Annotated[str | None, typer.Option(help="insert, update, delete or upsert rows of a table.")] = None,
    batch: Annotated[int, typer.Option(help="Rows per request.", min=1)] = 1000,
    skip: Annotated[bool, typer.Option("--skip", help="Leave out bad rows.")] = False,
    server: Server = _HERE,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Send events or changes to a server; each request is applied once, also over a lost connection.

    \b
      tocsin publish hits '{"page": "/pay", "ms": 950}'
      tail -f hits.jsonl | tocsin publish hits - --batch 1 --server http://alerts:7780
    """
    applied, rejected, last = 0, 0, None
    with _remote(server, token, as_json) as remote, _lines(rows) as lines:
        while some := list(islice(lines, batch)):
            done = remote.publish(relation, b"".join(some), op=op, skip=skip)
            applied, rejected, last = applied + done.applied, rejected + len(done.rejected), done.token
            for bad in done.rejected:
                typer.echo(f"row {bad['row']}: {bad['reason']}", err=True)
    if as_json:
        print_json({"applied": applied, "rejected": rejected, "token": last})
    else:
        typer.echo(f"{applied} applied" + (f", {rejected} rejected" if rejected else ""))


def subscribe(
    query: Annotated[str, typer.Argument(help="A SELECT, a file of statements, or - for stdin.")],
    id: Annotated[int | None, typer.Option(help="An id of your own, for a single query.")] = None,
    subscriber: Subscriber = None,
    server: Server = _HERE,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Execute definitions and register queries at a server: a SELECT, or a file of statements.

    \b
      tocsin subscribe 'SELECT * FROM hits WHERE ms > 900' --subscriber ann
      tocsin subscribe alerts.sql --server http://alerts:7780
    """
    from tocsin.language.statements import split_statements

    with _remote(server, token, as_json) as remote:
        first_word = query.split(None, 1)[0].upper() if query.split() else ""
        is_text = first_word in ("SELECT", "CREATE", "DROP", "WITH")
        texts = [found.text for found in split_statements(query if is_text else read_text(Path(query)))]
        definitions = [text for text in texts if text.split(None, 1)[0].upper() in ("CREATE", "DROP")]
        queries = [text for text in texts if text not in definitions]
        if id is not None and len(queries) != 1:
            raise UsageError(f"--id is for one query, not for {len(queries)}", hint="leave out --id")
        if definitions:
            remote.define(";\n".join(definitions))
        if len(queries) == 1:
            one = remote.subscribe(queries[0], id=id, subscriber=subscriber)
            ids, warnings = [one.id], one.warnings
        else:
            rows = [{"sql": text, "subscriber": subscriber} for text in queries]
            done = remote.subscribe_many(rows) if rows else {"first": 0, "count": 0}
            ids, warnings = list(range(done["first"], done["first"] + done["count"])), []
    for warning in warnings:
        typer.echo(warning, err=True)
    if as_json:
        print_json({"ids": ids})
    else:
        typer.echo("\n".join(map(str, ids)))


def follow(
    subscription: Annotated[
        list[int] | None, typer.Argument(help="Ids. Default: all of the subscriber, or of the server.")
    ] = None,
    subscriber: Subscriber = None,
    since: Annotated[str | None, typer.Option(help="A resume token: go on after it.")] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", help="End after so many deltas.", min=0)
    ] = None,
    server: Server = _HERE,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Print contents and then their deltas as they come; a lost connection is resumed.

    \b
      tocsin follow 1 2
      tocsin follow --subscriber ann --json | jq .row
      tocsin follow --since 855754c9-4 --json

    Each line is one row: + entered, - left, = was there. As JSON, the last line of a message has its token.
    """
    left = limit
    with _remote(server, token, as_json) as remote, suppress(KeyboardInterrupt):
        for message in remote.follow(subscription or None, subscriber=subscriber, since=since):
            for line in islice(_shown(message), None if message.type == "snapshot" else left):
                typer.echo(json.dumps(line, ensure_ascii=False) if as_json else _text(line))
            sys.stdout.flush()
            if left is not None:
                left -= min(left, len(message.deltas))
                if not left:
                    return


def content(
    subscription: Annotated[int, typer.Argument(help="The subscription's id.")],
    server: Server = _HERE,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Print the answer of a subscription now, a row per line.

    \b
      tocsin content 1
      tocsin content 1 --server http://alerts:7780 --json
    """
    with _remote(server, token, as_json) as remote:
        rows = remote.content(subscription)
    if as_json:
        print_json(rows)
        return
    for row in rows:
        typer.echo(json.dumps(row, ensure_ascii=False))


@contextmanager
def _lines(rows: str) -> Iterator[Iterator[bytes]]:
    """The lines of an argument: JSON, a file, or stdin."""
    if rows.lstrip()[:1] in ("{", "["):
        found = json.loads(rows) if rows.lstrip()[0] == "[" else [json.loads(rows)]
        yield iter([json.dumps(row).encode() + b"\n" for row in found])
    elif rows == "-":
        yield _whole(sys.stdin.buffer)
    else:
        try:
            file = Path(rows).open("rb")  # noqa: SIM115 - closed below
        except OSError as error:
            raise UsageError(f"{rows} cannot be read: {error.strerror or error}") from None
        with file:
            yield _whole(file)


def _whole(file: Any) -> Iterator[bytes]:
    return (line if line.endswith(b"\n") else line + b"\n" for line in file if line.strip())


def _shown(message: RemoteMessage) -> Iterator[dict[str, Any]]:
    """The rows of a message, each with its sign: 0 for one of a snapshot. The last one has the token."""
    there = [
        {"subscription": id, "sign": 0, "row": row} for id, rows in message.contents.items() for row in rows
    ]
    came = [
        {"seq": d.seq, "subscription": d.subscription, "sign": d.sign, "row": d.row} for d in message.deltas
    ]
    lines: list[dict[str, Any]] = there + came
    if lines:
        lines[-1]["token"] = message.token
    yield from lines


def _text(line: dict[str, Any]) -> str:
    sign = {0: "=", 1: "+", -1: "-"}[line["sign"]]
    return f"{line['subscription']} {sign} {json.dumps(line['row'], ensure_ascii=False)}"
