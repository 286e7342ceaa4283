"""`tocsin import`: rules of other systems, each taken as a condition or refused with its place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from tocsin.commands.output import PROBLEM, print_json, read_text, report_errors, stderr, stdout
from tocsin.commands.subscription_commands import Json
from tocsin.errors import UsageError

__all__ = ["ImportReport", "add_rules_command", "import_rules"]

_SUFFIXES = {".json", ".jsonl", ".yml", ".yaml", ".txt", ".cesql", ".sql"}
_EXPORTS = ("sql", "none")


class ImportReport:
    """What was read of each file: for each rule its SQL, or the place and construct that refused it."""

    def __init__(self, kind: str, stream: str, definition: str | None = None) -> None:
        self.kind, self.stream, self.definition = kind, stream, definition
        self.rules: list[dict[str, Any]] = []

    @property
    def taken(self) -> int:
        return sum(rule["taken"] for rule in self.rules)

    def to_dict(self) -> dict[str, Any]:
        counts = {"rules": len(self.rules), "taken": self.taken, "refused": len(self.rules) - self.taken}
        return {"kind": self.kind, **counts, "outcomes": self.rules}

    def sql(self) -> Iterator[str]:
        """Statements for `tocsin match` and the like, each after the name of its rule."""
        from tocsin.model.schema import quote

        yield f"{self.definition or f'CREATE STREAM {quote(self.stream)}'};"
        for rule in self.rules:
            if rule["taken"]:
                yield f"\n-- {' '.join(rule['rule'].split())}\n{rule['sql']};"


def read_files(kind: str, files: list[Path], stream: str, options: dict[str, Any]) -> ImportReport:
    """Read the rules of all files."""
    from tocsin.language.predicates import relation_query
    from tocsin.model.schema import Stream
    from tocsin.rules.base import Condition, Refusal, language
    from tocsin.subscriptions.rules import normal_form

    report, reader = ImportReport(kind, stream), language(kind, **options)
    for file in _all_files(files):
        for rule in reader.read(reader.in_file(read_text(file))):
            made: dict[str, Any] = {"file": str(file), "rule": rule.rule, "taken": False}
            found = normal_form(rule) if isinstance(rule, Condition) else rule
            if isinstance(found, Refusal):
                made |= {"place": found.place, "construct": found.construct, "reason": found.reason}
            elif isinstance(rule, Condition):
                made |= {"taken": True, "sql": str(relation_query(Stream(stream), rule.where))}
            report.rules.append(made)
    return report


def read_sigma_files(files: list[Path], stream: Any, options: dict[str, Any]) -> ImportReport:
    """Read Sigma rules over a stream with declared columns: correlations too, over rules of any file."""
    from tocsin.rules.base import Refusal
    from tocsin.rules.correlations import read_correlations

    report = ImportReport("sigma", stream.name, str(stream))
    texts = {file: read_text(file) for file in _all_files(files)}
    for file, text in texts.items():
        others = [other for name, other in texts.items() if name != file]
        for found in read_correlations(text, stream, others=others, detections=True, **options):
            made: dict[str, Any] = {"file": str(file), "rule": found.rule, "taken": False}
            if isinstance(found, Refusal):
                made |= {"place": found.place, "construct": found.construct, "reason": found.reason}
            else:
                made |= {"taken": True, "sql": found.sql}
            report.rules.append(made)
    return report


def _declared(schema: Path, name: str) -> Any:
    """The stream of a file of definitions."""
    from tocsin.commands.subscription_files import load_schema
    from tocsin.engine import Engine
    from tocsin.model.schema import Stream

    engine = Engine()
    load_schema(engine, schema)
    streams = [one for one in engine.schemas() if isinstance(one, Stream)]
    for stream in streams:
        if stream.name == name:
            if stream.open:
                raise UsageError(f"{name} is an open stream", hint="correlations are over declared columns")
            return stream
    raise UsageError(
        f"{schema} has no stream {name!r}", hint=f"--stream is one of {', '.join(s.name for s in streams)}"
    )


def _all_files(files: list[Path]) -> Iterator[Path]:
    """The files, and those in folders that look like rules."""
    for file in files:
        if file.is_dir():
            yield from sorted(one for one in file.rglob("*") if one.suffix in _SUFFIXES and one.is_file())
        elif file == Path("-") or file.exists():
            yield file
        else:
            raise UsageError(f"{file} does not exist")


def add_rules_command(app: typer.Typer) -> None:
    """Add the command to an app."""
    app.command("import")(import_rules)


def import_rules(
    kind: Annotated[str, typer.Argument(help="cesql, eventbridge, percolator or sigma.", show_default=False)],
    files: Annotated[list[Path], typer.Argument(help="Files or folders of rules; - for stdin.")],
    stream: Annotated[
        str, typer.Option("--stream", "-r", help="The stream that the rules are over.")
    ] = "events",
    export: Annotated[str, typer.Option("--export", help="sql: print the rules taken as SQL.")] = "none",
    pipeline: Annotated[
        list[str] | None,
        typer.Option("--pipeline", help="Sigma: a file with a processing pipeline, or the name `windows`."),
    ] = None,
    mapping: Annotated[
        Path | None,
        typer.Option("--mapping", help="Percolator: a JSON file with the mapping of the index."),
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option("--schema", help="Sigma: a file that declares the stream; correlations need columns."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Read rules of another system: each is taken exactly, or refused with the place and the construct.

    The exit code is 1 if a rule was refused.

    \b
      tocsin import eventbridge patterns.json
      tocsin import sigma rules/ --schema logins.sql --stream logins --export sql
      tocsin import sigma rules/ --pipeline windows --json
      tocsin import percolator queries.jsonl --mapping mapping.json
      tocsin import eventbridge patterns.json --export sql > patterns.sql
    """
    with report_errors(as_json):
        if export not in _EXPORTS:
            raise UsageError(f"--export is sql, not {export!r}")
        options: dict[str, Any] = {}
        if pipeline:
            options["pipelines"] = [read_text(Path(one)) if Path(one).is_file() else one for one in pipeline]
        if mapping:
            options["mapping"] = read_text(mapping)
        if schema and kind != "sigma":
            raise UsageError(f"--schema is for sigma, not {kind}", hint="rules are over an open stream")
        if schema:
            report = read_sigma_files(files, _declared(schema, stream), options)
        else:
            report = read_files(kind, files, stream, options)
    _print(report, export, as_json)
    if report.taken < len(report.rules):
        raise typer.Exit(PROBLEM)


def _print(report: ImportReport, export: str, as_json: bool) -> None:
    if as_json:
        print_json(report.to_dict())
        return
    if export == "sql":
        for text in report.sql():
            typer.echo(text)
    out = stderr() if export == "sql" else stdout()
    for rule in report.rules:
        if not rule["taken"]:
            where = ": ".join(part for part in (rule["place"], rule["construct"]) if part)
            out.print(f"{rule['file']}: {rule['rule']}: {where}: {rule['reason']}", markup=False)
    out.print(f"{report.taken} of {len(report.rules)} rules taken", markup=False)
