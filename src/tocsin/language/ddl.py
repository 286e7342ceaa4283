"""Definitions: `CREATE TABLE`, `CREATE STREAM` and `DROP`.

>>> print(*parse_definitions("CREATE STREAM s; CREATE TABLE t (id BIGINT PRIMARY KEY, x DATE)"), sep="; ")
CREATE STREAM s; CREATE TABLE t (id BIGINT, x DATE, PRIMARY KEY (id))
>>> parse_definitions("CREATE TABLE t (id INT64)")
Traceback (most recent call last):
...
tocsin.errors.SqlError: 'INT64' is not a type here
  line 1, column 20: CREATE TABLE t (id INT64)
                                        ^^^^^
hint: write BIGINT
>>> print(*parse_definitions("CREATE TABLE t (id BIGINT PRIMARY KEY, photo STRING) PAYLOAD (photo)"))
CREATE TABLE t (id BIGINT, photo STRING, PRIMARY KEY (id)) PAYLOAD (photo)
>>> print(*parse_definitions("CREATE STREAM hits (page STRING) RETAIN '90 minutes'"))
CREATE STREAM hits (page STRING) RETAIN '1 hour 30 minutes'
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlglot import exp

from tocsin.language.algebra import Column
from tocsin.language.dialect import SourceText
from tocsin.language.dialect import read as read_text
from tocsin.language.expressions import ExpressionReader
from tocsin.language.literals import DIGITS_HINT, Constant, ConstantReader, read_decimal_type
from tocsin.language.scope import nearest
from tocsin.language.spans import BadAmount, read_span
from tocsin.model.constraints import WHOLE_SIZES, too_large
from tocsin.model.schema import Field, Stream, Table, Type, quote, read

__all__ = ["AddColumns", "Definition", "Drop", "IfNotExists", "parse_definitions"]

_ALIASES = {
    "LONG": Type.BIGINT, "TEXT": Type.STRING, "VARCHAR": Type.STRING, "BOOL": Type.BOOLEAN,
    "REAL": Type.DOUBLE,
}  # fmt: skip
_TEXT_SIZE = re.compile(r"(VARCHAR|CHAR)\([1-9][0-9]{0,8}\)")
_INSTEAD = {
    Type.BIGINT: ("INT64", "NUMBER", "UNSIGNED"),
    Type.DOUBLE: ("FLOAT", "FLOAT64"),
    Type.STRING: ("CHAR", "NVARCHAR", "BINARY", "UUID"),
    Type.BOOLEAN: ("BIT",),
    Type.TIMESTAMP: ("DATETIME", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "TIMESTAMPTZ", "TIME"),
}
_HINTS = {word: f"write {type_}" for type_, words in _INSTEAD.items() for word in words}
_DECIMAL_SIZE = re.compile(r"(?:DECIMAL|DEC|NUMERIC)(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?", re.ASCII)
_DECIMAL = f"{DIGITS_HINT}; or write DOUBLE"
_RESERVED = ("_op", "_seq")


@dataclass(frozen=True, slots=True)
class Drop:
    """`DROP TABLE name` or `DROP STREAM name`; an unquoted name ignores case."""

    kind: str
    name: str
    quoted: bool = False
    if_exists: bool = False

    def __str__(self) -> str:
        return f"DROP {self.kind} {'IF EXISTS ' if self.if_exists else ''}{quote(self.name)}"


@dataclass(frozen=True, slots=True)
class IfNotExists:
    """A definition that changes nothing where there is a stream or table of its name."""

    made: Table | Stream

    @property
    def name(self) -> str:
        return self.made.name

    def __str__(self) -> str:
        kind = "TABLE" if isinstance(self.made, Table) else "STREAM"
        return str(self.made).replace(f"CREATE {kind}", f"CREATE {kind} IF NOT EXISTS", 1)


@dataclass(frozen=True, slots=True)
class AddColumns:
    """`ALTER TABLE name ADD COLUMN ...`; with `if_absent`, columns that are there already are left out."""

    name: str
    fields: tuple[Field, ...]
    if_absent: bool = False

    def __str__(self) -> str:
        absent = "IF NOT EXISTS " if self.if_absent else ""
        return f"ALTER TABLE {quote(self.name)} ADD COLUMN {absent}({', '.join(map(str, self.fields))})"


Definition = Table | Stream | Drop | IfNotExists | AddColumns


def parse_definitions(text: str) -> list[Definition]:
    """Parse one or several definitions, separated by semicolons, in order."""
    trees, source = read_text(text, "a definition")
    if not trees:
        raise source.error("the text is empty", None, "write CREATE TABLE ..., CREATE STREAM ... or DROP ...")
    return [_definition(tree, source) for tree in trees]


def _definition(tree: exp.Expr, source: SourceText) -> Definition:
    if isinstance(tree, exp.Drop):
        name = tree.this.this
        return Drop(str(tree.args["kind"]), name.name, bool(name.quoted), bool(tree.args.get("exists")))
    if isinstance(tree, exp.Alter):
        return _added(tree, source)
    if isinstance(tree, exp.Create) and tree.args.get("exists"):
        tree.set("exists", None)
        made = _definition(tree, source)
        assert isinstance(made, Table | Stream)
        return IfNotExists(made)
    if not isinstance(tree, exp.Create):
        hint = "a SELECT is for subscribe" if isinstance(tree, exp.Select) else "DROP it, then CREATE it anew"
        raise source.error("a definition is CREATE TABLE, CREATE STREAM or DROP", tree, hint)
    name, parts, properties = tree.this.this.this, tree.this.expressions, tree.args.get("properties")
    by_name = {one.this: one for one in properties.expressions} if properties else {}
    retain, payload = by_name.get("RETAIN"), by_name.get("PAYLOAD")
    columns = [part for part in parts if isinstance(part, exp.ColumnDef)]
    fields = _fields(columns, source)
    keys: list[exp.Expr] = [part for part in parts if isinstance(part, exp.PrimaryKey)]
    keys += [one for part in columns for one in _constraints(part, exp.PrimaryKeyColumnConstraint)]
    if tree.args["kind"] == "STREAM":
        if keys:
            raise source.error("a stream has no primary key", keys[0], "leave it out, or make it a table")
        if parts and not fields:
            raise source.error("a stream has columns or none", name, "leave out the parentheses")
        if payload:
            hint = "leave it out: an event passes once, with all its columns; or make it a table"
            raise source.error("PAYLOAD is for tables", payload, hint)
        return Stream(name.name, fields, _duration(retain.args["value"], source) if retain else None)
    if retain:
        raise source.error(
            "RETAIN is for streams", retain, "leave it out: a table keeps its rows until they are deleted"
        )
    if not keys:
        raise source.error(f"table {name.name!r} has no primary key", name, "add PRIMARY KEY (column, ...)")
    if len(keys) > 1:
        raise source.error(
            "a table has one primary key", keys[1], "write PRIMARY KEY (a, b) for several columns"
        )
    table = Table(name.name, fields)
    key = _key(keys[0], table, source)
    return Table(name.name, fields, key, _payload(payload, key, table, source) if payload else ())


def _fields(columns: list[exp.ColumnDef], source: SourceText) -> tuple[Field, ...]:
    fields: dict[str, Field] = {}
    for column in columns:
        name = column.this.name
        if name.lower() in fields:
            raise source.error(
                f"column {name!r} occurs twice", column.this, "names that differ only by case are one"
            )
        if name.lower() in _RESERVED:
            raise source.error(
                f"the name {name!r} is reserved for batches of changes", column.this, "choose another"
            )
        type, size = _type(column.args["kind"], source)
        nulls = _constraints(column, exp.NotNullColumnConstraint)
        required = bool(nulls) and not nulls[-1].args.get("allow_null")
        default = _default(column, type, size, required, source)
        fields[name.lower()] = Field(name, type, size, required, default)
    return tuple(fields.values())


def _constraints(column: exp.Expr, kind: type[exp.Expr]) -> list[exp.Expr]:
    return [one for one in column.args.get("constraints") or () if isinstance(one, kind)]


def _default(column: exp.Expr, type: Type, size: str, required: bool, source: SourceText) -> Any:
    """The constant of DEFAULT, as a value of the column."""
    found = _constraints(column, exp.DefaultColumnConstraint)
    if not found:
        return None
    node = found[-1].this
    constant = ExpressionReader(_NoNames(source), ConstantReader(source)).column(node)
    assert isinstance(constant, Constant)
    try:
        value = read(type, constant.value)
    except ValueError as error:
        raise source.error(str(error), node, f"write a {type}, or leave DEFAULT out") from None
    reason = too_large(size, value)
    if reason or (value is None and required):
        raise source.error(
            reason or "a column that is NOT NULL has no default NULL", node, "leave DEFAULT out"
        )
    return value


@dataclass(frozen=True, slots=True)
class _NoNames:
    """No names at all: a default is a constant."""

    source: SourceText

    def column(self, node: Any) -> Column:
        raise self.source.error("a default is a constant", node, "put text in quotes")

    def nested(self, node: exp.Expr, literals: ConstantReader) -> Column | None:
        return self.column(node)


def _added(tree: exp.Expr, source: SourceText) -> AddColumns:
    name, columns = tree.this.this, tree.args["actions"]
    for column in columns:
        keys: list[exp.Expr] = [column] if isinstance(column, exp.PrimaryKey) else []
        if keys := keys or _constraints(column, exp.PrimaryKeyColumnConstraint):
            raise source.error("a primary key does not change", keys[0], "define another table")
    return AddColumns(name.name, _fields(columns, source), bool(tree.args.get("exists")))


def _type(node: exp.Var, source: SourceText) -> tuple[Type, str]:
    """The type, and the word for it if that limits values further."""
    word = node.name.upper()
    if word in Type.__members__:
        return Type(word), ""
    if word in _ALIASES:
        return _ALIASES[word], ""
    if word in WHOLE_SIZES:
        return Type.BIGINT, word
    if _TEXT_SIZE.fullmatch(word):
        return Type.STRING, word
    if (sizes := _DECIMAL_SIZE.fullmatch(word)) is not None:
        found = read_decimal_type(sizes[1] or "10", sizes[2] or "0")
        if found is not None:
            return found, ""
    known = "types are BIGINT, DOUBLE, DECIMAL(p,s), STRING, BOOLEAN, DATE and TIMESTAMP"
    near = _HINTS.get(word) or nearest(word, Type.__members__) or known
    hint = _DECIMAL if word.startswith(("DEC", "NUMERIC")) else near
    raise source.error(f"{node.name!r} is not a type here", node, hint)


def _duration(node: exp.Expr, source: SourceText) -> timedelta:
    try:
        return read_span(node.name)
    except BadAmount as error:
        below = error.fact.endswith("below a microsecond")
        hint = "leave RETAIN out to keep no events" if below else error.hint
        raise source.error(error.fact, node, hint) from None


def _key(key: exp.Expr, table: Table, source: SourceText) -> tuple[str, ...]:
    if isinstance(key, exp.PrimaryKeyColumnConstraint):
        return (key.parent.this.name,) if key.parent is not None else ()
    return _columns(key.expressions, "the key", table, source)


def _payload(payload: exp.Expr, key: tuple[str, ...], table: Table, source: SourceText) -> tuple[str, ...]:
    nodes = payload.args["value"].expressions
    names = _columns(nodes, "the payload", table, source)
    for node, name in zip(nodes, names, strict=True):
        if name in key:
            hint = "leave it out: the payload is what rows are not known by"
            raise source.error(f"column {name!r} is in the key", node, hint)
    return names


def _columns(nodes: list[exp.Identifier], where: str, table: Table, source: SourceText) -> tuple[str, ...]:
    """The columns of a table that are named in a list."""
    names: list[str] = []
    for node in nodes:
        field = table.find(node.name, exact=bool(node.quoted))
        if field is None:
            hint = nearest(node.name, table.names) or f"its columns are {', '.join(table.names)}"
            raise source.error(f"there is no column {node.name!r} in {table.name}", node, hint)
        if field.name in names:
            raise source.error(f"column {field.name!r} occurs twice in {where}", node, "name it once")
        names.append(field.name)
    return tuple(names)
