"""Golden files: statements with what is to come of them in the comments before each.

    -- shape: filter                           -- error: there is no column 'prise' in listings
    -- normal: listings: price <= 5            --   line 1, column 30: SELECT * FROM listings WHERE prise <= 5
    SELECT * FROM listings WHERE price <= 5;   --                                                   ^^^^^
                                               -- hint: did you mean 'price'?
                                               SELECT * FROM listings WHERE prise <= 5;

They are ordinary files for `tocsin validate`. `python -m tests.golden.cases` records again what
the statements give; look at the difference before you keep it.
"""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

from tocsin.errors import TocsinError
from tocsin.language.shape import plan
from tocsin.language.sql import Drop, parse_definitions, parse_query
from tocsin.language.statements import Statement, split_statements
from tocsin.model.schema import Stream, Table

FOLDER = Path(__file__).parent


def load(name: str) -> list[Statement]:
    """The statements of good.sql or bad.sql."""
    return split_statements((FOLDER / name).read_text(encoding="utf-8"))


def outcome(statement: Statement, catalog: dict[str, Table | Stream]) -> dict[str, str]:
    """What a statement gives; a good definition gives nothing, and enters the catalog."""
    try:
        if statement.text.upper().startswith(("CREATE", "DROP")):
            for definition in parse_definitions(statement.text):
                assert not isinstance(definition, Drop)
                catalog[definition.name] = definition
            return {}
        planned = plan(parse_query(statement.text, catalog), text=statement.text)
    except TocsinError as error:
        return {"error": str(error)}
    warnings = {"warning": planned.warnings[0]} if planned.warnings else {}
    return {"shape": str(planned.shape), "normal": planned.normal, **warnings}


def record(name: str) -> None:
    """Rewrite the file with the current outcome of its statements."""
    catalog: dict[str, Table | Stream] = {}
    parts = []
    for statement in load(name):
        lines = [f"-- {remark}".rstrip() for remark in remarks(statement)]
        for key, text in outcome(statement, catalog).items():
            lines += [f"-- {line}".rstrip() for line in f"{key}: {text}".splitlines()]
        parts.append("\n".join([*lines, statement.text + ";"]) + "\n")
    (FOLDER / name).write_text("\n".join(parts), encoding="utf-8")


def remarks(statement: Statement) -> list[str]:
    """The comments that record nothing: those before the first that does."""
    keys = tuple(f"{key}: " for key in statement.expected)
    return list(takewhile(lambda comment: not (keys and comment.startswith(keys)), statement.comments))


if __name__ == "__main__":
    record("good.sql")
    record("bad.sql")
