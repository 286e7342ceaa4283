"""The commands `tocsin serve` and `tocsin tokens`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from tocsin.commands.output import print_json, report_errors
from tocsin.commands.subscription_commands import Json
from tocsin.errors import UsageError

__all__ = ["add_server_commands"]

Folder = Annotated[Path, typer.Option("--dir", help="The folder of the data; it is created.")]
Tenant = Annotated[str, typer.Option("--tenant", help="Whose token it is.")]
Name = Annotated[str, typer.Option("--name", help="What the token is called.")]

tokens_app = typer.Typer(help="Tokens and quotas of a server's tenants.", no_args_is_help=True)


def add_server_commands(app: typer.Typer) -> None:
    """Add them to an app."""
    app.command("serve")(serve)
    app.add_typer(tokens_app, name="tokens")


@contextmanager
def _with_hint(as_json: bool = False) -> Iterator[None]:
    """Report errors; a missing dependency says what to install."""
    with report_errors(as_json):
        try:
            yield
        except ModuleNotFoundError as error:
            raise ImportError(f"{error}; install tocsin[server]") from None


def serve(
    folder: Folder,
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen at.", min=0, max=65535)] = 7780,
    certificate: Annotated[
        Path | None, typer.Option("--tls-cert", help="A certificate (PEM): serve HTTPS.", exists=True)
    ] = None,
    key: Annotated[Path | None, typer.Option("--tls-key", help="Its private key (PEM).", exists=True)] = None,
    client_ca: Annotated[
        Path | None,
        typer.Option("--tls-client-ca", help="Clients need a certificate of this CA (PEM).", exists=True),
    ] = None,
    max_body: Annotated[int, typer.Option(help="Most bytes of a request's body.", min=1)] = 64 << 20,
    max_sql: Annotated[int, typer.Option(help="Most characters of an SQL text.", min=1)] = 64 << 10,
    max_patterns: Annotated[int, typer.Option(help="Most LIKE and RLIKE of a query.", min=0)] = 100,
    keep_deltas: Annotated[
        int, typer.Option(help="Megabytes of deltas that followers can resume from, per tenant.", min=1)
    ] = 1024,
    is_open: Annotated[
        bool,
        typer.Option("--open", help="Listen at any address without tokens: all may do everything."),
    ] = False,
    log_format: Annotated[str, typer.Option(help="text, or json: one object per line, on stderr.")] = "text",
) -> None:
    """Serve streams, tables and subscriptions over HTTP, durably.

    \b
      tocsin serve --dir data
      curl --json '{"sql": "CREATE STREAM hits"}' localhost:7780/v1/definitions
      curl -N -H 'accept: text/event-stream' localhost:7780/v1/deltas

    A change is answered when it is in the log and synced. GET /v1/openapi.json describes all requests. SIGINT
    and SIGTERM end it in order; a killed server loses nothing that it has answered.
    """
    with _with_hint():
        if (key is None) != (certificate is None):
            raise UsageError("TLS needs --tls-cert and --tls-key", hint="give both")
        if log_format not in ("text", "json"):
            raise UsageError(f"--log-format is text or json, not {log_format!r}")
        from tocsin.server.keeper import Settings
        from tocsin.server.limits import Limits
        from tocsin.server.serve import ServeOptions
        from tocsin.server.serve import serve as run

        limits, settings = Limits(max_body, max_sql, max_patterns), Settings(delta_bytes=keep_deltas << 20)
        run(
            ServeOptions(
                folder, host, port, limits, settings, certificate, key, client_ca, is_open, log_format
            )
        )


@tokens_app.command("add")
def add_token(
    folder: Folder,
    scopes: Annotated[
        list[str], typer.Option("--scope", help="define, subscribe, publish, read or admin; several times.")
    ],
    tenant: Tenant = "default",
    name: Name = "main",
) -> None:
    """Make a token and print it, once: the server keeps its hash alone.

    \b
      tocsin tokens add --dir data --tenant acme --name ci --scope publish --scope read
    """
    with _with_hint():
        from tocsin.server.access import AccessControl
        from tocsin.server.scopes import Scope

        wrong = [scope for scope in scopes if scope not in set(Scope)]
        if wrong:
            raise UsageError(f"{wrong[0]!r} is no scope", hint=f"scopes are {', '.join(Scope)}")
        typer.echo(
            AccessControl(folder).add_token(tenant, name, [Scope(scope) for scope in dict.fromkeys(scopes)])
        )


@tokens_app.command("remove")
def remove_token(folder: Folder, tenant: Tenant = "default", name: Name = "main") -> None:
    """End a token; requests that have it are rejected from now on."""
    with _with_hint():
        from tocsin.server.access import AccessControl

        AccessControl(folder).remove_token(tenant, name)


@tokens_app.command("list")
def list_tokens(folder: Folder, as_json: Json = False) -> None:
    """List tenants with their tokens and quotas."""
    with _with_hint(as_json):
        import msgspec

        from tocsin.server.access import AccessControl

        access = AccessControl(folder)
        found = [
            {
                "tenant": tenant,
                "tokens": [{"name": t.name, "scopes": [str(s) for s in t.scopes]} for t in entry.tokens],
                "quota": msgspec.to_builtins(entry.quota),
            }
            for tenant in access.tenants
            for entry in [access.tenant(tenant)]
        ]
    if as_json:
        print_json(found)
        return
    for one in found:
        quota = ", ".join(f"{name} {value:g}" for name, value in one["quota"].items()) or "no quota"
        typer.echo(f"{one['tenant']}  ({quota})")
        for token in one["tokens"]:
            typer.echo(f"  {token['name']}: {', '.join(token['scopes'])}")


@tokens_app.command("quota")
def set_quota(
    folder: Folder,
    tenant: Tenant,
    subscriptions: Annotated[int | None, typer.Option(help="Most subscriptions.", min=0)] = None,
    cost_us: Annotated[
        float | None, typer.Option(help="Measured microseconds per changed row; above, none is registered.")
    ] = None,
    changes_per_second: Annotated[float | None, typer.Option(help="Changed rows per second.")] = None,
    bytes_per_second: Annotated[float | None, typer.Option(help="Bytes of bodies per second.")] = None,
    stored_bytes: Annotated[int | None, typer.Option(help="Bytes of log and snapshot.", min=0)] = None,
    followers: Annotated[int | None, typer.Option(help="Open followers.", min=0)] = None,
) -> None:
    """Set the quota of a tenant; what is not given is not limited."""
    with _with_hint():
        from tocsin.server.access import AccessControl, Quota

        for value in (cost_us, changes_per_second, bytes_per_second):
            if value is not None and not value > 0:
                raise UsageError("a rate or a cost is above 0")
        quota = Quota(subscriptions, cost_us, changes_per_second, bytes_per_second, stored_bytes, followers)
        AccessControl(folder).set_quota(tenant, quota)
