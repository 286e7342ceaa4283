"""The command `tocsin demo`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tocsin.commands.output import PROBLEM, print_json, report_errors, stdout
from tocsin.commands.subscription_commands import Json

__all__ = ["app"]

app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def demo(
    context: typer.Context,
    days: Annotated[int, typer.Option(help="Days to replay, from 8 March 2013.", min=1, max=30)] = 2,
    subscriptions: Annotated[int, typer.Option(help="How many subscriptions to draw.", min=9)] = 2000,
    batches: Annotated[
        int | None, typer.Option(help="How many micro-batches. Default: 6; 10 above 2 days.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the subscriptions and of the checked sample.")] = 0,
    folder: Annotated[
        Path | None, typer.Option("--dir", help="Where to keep changes, state and deltas.", file_okay=False)
    ] = None,
    resume: Annotated[bool, typer.Option(help="Resume a run that was stopped or killed.")] = False,
    is_served: Annotated[
        bool, typer.Option("--serve", help="Send the flights to a server and open its page, without Spark.")
    ] = False,
    port: Annotated[int, typer.Option(help="The server's port.", min=0, max=65535)] = 7780,
    as_json: Json = False,
) -> None:
    """Replay real flights and weather through the Spark pipeline, and check the answers.

    \b
      tocsin demo
      tocsin demo --days 1 --subscriptions 300
      tocsin demo --days 30 --subscriptions 100000     a month, in less than five minutes
      tocsin demo --resume              after Ctrl-C, kill -9 or a power cut
      tocsin demo --serve               on a server, with its live page

    The demo replays two days around a snow storm in New York as a stream of changes to subscriptions of all
    shapes. At the end it compares the contents accumulated from the deltas with the reference evaluator and
    prints a checksum of all contents; a resumed run ends with the checksum of an uninterrupted one.
    """
    from tocsin.lab.demo.script import Script, default_batches, default_folder

    with report_errors(as_json):
        script = Script(days, subscriptions, seed, batches or default_batches(days))
        if is_served:
            from tocsin.lab.demo.live import serve_demo

            serve_demo(script, folder, port, lambda text: typer.echo(text, err=True))
            return
        from tocsin.lab.demo.run import run_demo

        given = {name: value for name, value in asdict(script).items() if _is_given(context, name)}
        summary = run_demo(folder or default_folder(), script, resume=resume, given=given)
    if as_json:
        print_json(summary.to_dict())
    else:
        summary.show(stdout())
    if not summary.ok:
        raise typer.Exit(PROBLEM)


def _is_given(context: typer.Context, option: str) -> bool:
    source = context.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"
