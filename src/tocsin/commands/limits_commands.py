"""The commands `tocsin limits` and `tocsin refresh`: what limits cost, and answers on demand."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tocsin.commands.output import print_json, report_errors, stdout
from tocsin.commands.subscription_commands import Json
from tocsin.errors import SubscriptionError

if TYPE_CHECKING:
    from tocsin.engine import Engine
    from tocsin.subscriptions.sources import Subscription

__all__ = ["add_limits_commands"]

Saved = Annotated[Path, typer.Argument(help="A folder written by Engine.save.", exists=True, file_okay=False)]


def add_limits_commands(app: typer.Typer) -> None:
    """Add both to an app."""
    app.command("limits")(print_limits)
    app.command("refresh")(refresh)


def print_limits(
    state: Saved,
    kept: Annotated[
        bool, typer.Option("--kept", help="What windows, groups and sequences keep, instead.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Report what limits cost the subscriptions of a saved engine.

    Of deferred ones: what was promised, and what was kept. Of joins of two streams: how many pairs the
    budget cost.

    \b
      tocsin limits saved/
      tocsin limits saved/ --json
      tocsin limits saved/ --kept
    """
    from tocsin.engine import Engine
    from tocsin.language.shape import Shape

    with report_errors(as_json):
        engine = Engine.load(state)
        if kept:
            _print_kept(_counted(engine), as_json)
            return
        limited = [s for s in engine.subscriptions() if s.shape in (Shape.DEFERRED, Shape.STREAMJOIN)]
        reports = [(one, _report(engine, one)) for one in limited]
    if as_json:
        print_json([{"id": one.id, "sql": one.sql, **report} for one, report in reports])
        return
    for one, report in reports:
        stdout().print(f"{one.id}  {_line(report)}  {one.sql}", markup=False)
        for warning in report.get("warnings", ()):
            stdout().print(f"    {warning}", markup=False)


def _counted(engine: Engine) -> dict[str, Any]:
    """The statistics, after groups were made from the saved rows, which the first content of each does."""
    from tocsin.language.shape import Shape

    made: set[Any] = set()
    for one in engine.subscriptions():
        query = engine.query(one.id)
        source = query.tables, query.where, query.group
        if one.shape is Shape.GROUP and source not in made:
            made.add(source)
            with suppress(SubscriptionError):  # it waits, or has expired
                engine.content(one)
    return engine.stats()


def _print_kept(stats: dict[str, Any], as_json: bool) -> None:
    """The state of windows, of groups by their tables and keys, and of sequences."""
    groups = {
        f"{', '.join(source['tables'])} by {', '.join(source['keys']) or 'nothing'}": {
            name: source[name] for name in ("groups", "values", "bytes")
        }
        for source in stats["group"]["sources"]
    }
    names = ("steps", "chains", "events", "bytes")
    sequences = (
        {name: stats["sequence"][name] for name in names} if stats["sequence"]["subscriptions"] else {}
    )
    found = {"windows": stats["windows"], "groups": groups, "sequences": sequences}
    if as_json:
        print_json(found)
        return
    for kind, parts in (("window", found["windows"]), ("groups of", groups), ("sequences", {"": sequences})):
        for name, counts in parts.items():
            shown = ", ".join(
                f"{count} {what}" for what, count in counts.items() if not isinstance(count, dict)
            )
            if shown:
                stdout().print(f"{kind} {name}: {shown}".replace(" :", ":"), markup=False)


def _report(engine: Engine, subscription: Subscription) -> dict[str, Any]:
    """The report of a subscription; one that waits or has expired has none."""
    try:
        return asdict(engine.limits(subscription))
    except SubscriptionError as error:
        return {"inactive": error.fact}


def _line(report: dict[str, Any]) -> str:
    """The policy and how the limit was kept, in a few words."""
    if "inactive" in report:
        return str(report["inactive"])
    if "missed" in report:
        about = "" if report["exact"] else "about "
        lost = f"{report['produced']} pairs, {about}{report['missed']} missed ({report['share']:.1%} emitted)"
        return f"{lost}, {report['rows']} rows of {report['budget'] or 'its window'}"
    promise = report.get("promise")
    if promise is None:
        return "on demand, no limit"
    within = f"within {promise['within']:g} ms, {report['policy']}"
    if not promise["refreshes"]:
        return f"{within}: not refreshed yet"
    kept = f"{promise['kept']:.0%} of {promise['refreshes']} refreshes kept it"
    return f"{within}: {kept}, 95 % took at most {promise['p95']:.1f} ms"


def refresh(
    state: Annotated[
        Path,
        typer.Argument(
            help="A folder written by Engine.save, or the `state` folder of a pipeline.",
            exists=True,
            file_okay=False,
        ),
    ],
    subscription: Annotated[int, typer.Argument(help="The id of a deferred subscription.")],
    as_json: Json = False,
) -> None:
    """Refresh a deferred subscription.

    Of a saved engine: print its net deltas, and save the engine. Of a pipeline: ask for it; the next batch
    sends the net deltas to the sink.

    \b
      tocsin refresh saved/ 7
      tocsin refresh out/state 7
    """
    with report_errors(as_json):
        if not (state / "manifest.json").is_file():
            _ask_for_refresh(state, subscription, as_json)
            return
        from tocsin.engine import Engine

        engine = Engine.load(state)
        deltas = list(engine.refresh(subscription))
        engine.save(state)
    if as_json:
        print_json([delta._asdict() for delta in deltas])
        return
    for delta in deltas:
        stdout().print(f"{delta.seq} {delta.subscription} {delta.sign} {delta.row}", markup=False)


def _ask_for_refresh(state: Path, subscription: int, as_json: bool) -> None:
    from tocsin.commands.subscriptions import versions_of

    version = versions_of(state).change(refresh=[subscription])
    if as_json:
        print_json({"version": version, "refreshed": subscription})
    else:
        stdout().print(f"version {version}: subscription {subscription} is refreshed with the next batch")
