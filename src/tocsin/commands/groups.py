"""Commands that live in modules of their own, added to the command `tocsin`."""

from __future__ import annotations

import typer

from tocsin.commands.limits_commands import add_limits_commands
from tocsin.commands.remote_commands import add_remote_commands
from tocsin.commands.rules import add_rules_command
from tocsin.commands.server_commands import add_server_commands

__all__ = ["add_groups"]


def add_groups(app: typer.Typer) -> None:
    """Add all of them to an app."""
    add_limits_commands(app)
    add_remote_commands(app)
    add_rules_command(app)
    add_server_commands(app)
