"""Definitions: `CREATE TABLE`, `CREATE STREAM` and `DROP`.

>>> print(*parse_definitions("CREATE STREAM s; CREATE TABLE t (id BIGINT PRIMARY KEY, x DATE)"), sep="; ")
CREATE STREAM s; CREATE TABLE t (id BIGINT, x DATE, PRIMARY KEY (id))
>>> parse_definitions("CREATE TABLE t (id INT)")
Traceback (most recent call last):
...
tocsin.errors.SqlError: 'INT' is not a type here
  line 1, column 20: CREATE TABLE t (id INT)
                                        ^^^
hint: write BIGINT
>>> print(*parse_definitions("CREATE TABLE t (id BIGINT PRIMARY KEY, photo STRING) PAYLOAD (photo)"))
CREATE TABLE t (id BIGINT, photo STRING, PRIMARY KEY (id)) PAYLOAD (photo)
>>> print(*parse_definitions("CREATE STREAM hits (page STRING) RETAIN '90 minutes'"))
CREATE STREAM hits (page STRING) RETAIN '1 hour 30 minutes'
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from sqlglot import exp

from tocsin.language.dialect import SourceText, read
from tocsin.language.scope import nearest
from tocsin.language.spans import BadAmount, read_span
from tocsin.model.schema import Field, Stream, Table, Type, quote

__all__ = ["Definition", "Drop", "parse_definitions"]

_ALIASES = {"LONG": Type.BIGINT}
_INSTEAD = {
    Type.BIGINT: ("INT", "INTEGER", "SMALLINT", "TINYINT", "SHORT", "BYTE", "INT64", "NUMBER"),
    Type.DOUBLE: ("FLOAT", "REAL", "DECIMAL", "NUMERIC", "DEC", "FLOAT64"),
    Type.STRING: ("TEXT", "VARCHAR", "CHAR", "NVARCHAR", "BINARY", "UUID"),
    Type.BOOLEAN: ("BOOL", "BIT"),
    Type.TIMESTAMP: ("DATETIME", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "TIMESTAMPTZ", "TIME"),
}
_HINTS = {word: f"write {type_}" for type_, words in _INSTEAD.items() for word in words}
_RESERVED = ("_op", "_seq")


@dataclass(frozen=True, slots=True)
class Drop:
    """`DROP TABLE name` or `DROP STREAM name`; an unquoted name ignores case."""

    kind: str
    name: str
    quoted: bool = False

    def __str__(self) -> str:
        return f"DROP {self.kind} {quote(self.name)}"


Definition = Table | Stream | Drop


def parse_definitions(text: str) -> list[Definition]:
    """Parse one or several definitions, separated by semicolons, in order."""
    trees, source = read(text, "a definition")
    if not trees:
        raise source.error("the text is empty", None, "write CREATE TABLE ..., CREATE STREAM ... or DROP ...")
    return [_definition(tree, source) for tree in trees]


def _definition(tree: exp.Expr, source: SourceText) -> Definition:
    if isinstance(tree, exp.Drop):
        name = tree.this.this
        return Drop(str(tree.args["kind"]), name.name, bool(name.quoted))
    if not isinstance(tree, exp.Create):
        hint = "a SELECT is for subscribe" if isinstance(tree, exp.Select) else "DROP it, then CREATE it anew"
        raise source.error("a definition is CREATE TABLE, CREATE STREAM or DROP", tree, hint)
    name, parts, properties = tree.this.this.this, tree.this.expressions, tree.args.get("properties")
    by_name = {one.this: one for one in properties.expressions} if properties else {}
    retain, payload = by_name.get("RETAIN"), by_name.get("PAYLOAD")
    columns = [part for part in parts if isinstance(part, exp.ColumnDef)]
    fields = _fields(columns, source)
    keys = [part for part in parts if isinstance(part, exp.PrimaryKey)]
    keys += [part.args["constraints"][0] for part in columns if part.args.get("constraints")]
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
        fields[name.lower()] = Field(name, _type(column.args["kind"], source))
    return tuple(fields.values())


def _type(node: exp.Var, source: SourceText) -> Type:
    word = node.name.upper()
    if word in Type.__members__:
        return Type(word)
    if word in _ALIASES:
        return _ALIASES[word]
    known = "types are BIGINT, DOUBLE, STRING, BOOLEAN, DATE and TIMESTAMP"
    hint = _HINTS.get(word) or nearest(word, Type.__members__) or known
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
