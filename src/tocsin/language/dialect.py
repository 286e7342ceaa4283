"""The dialect: sqlglot's Spark SQL plus our definitions, with positions.

sqlglot parses Spark's SQL. This dialect adds `CREATE STREAM ... RETAIN`, `CREATE TABLE ... PAYLOAD` and
`SELECT ... WITH (name = value, ...)`, restricts definitions to the supported ones, reads a doubled quote
inside a string as one quote, and turns each syntax error into a `SqlError` that points at the token:

>>> read("SELECT * FROM t WHERE a <")
Traceback (most recent call last):
...
tocsin.errors.SqlError: syntax error at the end of the text
  line 1, column 25: SELECT * FROM t WHERE a <
                                             ^

A `SourceText` is the text with its tokens; it finds the position of a node or a keyword.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokens import Token, TokenType

from tocsin.errors import Position, SqlError
from tocsin.language.deep_stack import MAX_LEVELS, with_deep_stack
from tocsin.language.hints import syntax_hint
from tocsin.model.expressions.names import COMPUTED_NAMES

__all__ = ["SourceText", "TocsinDialect", "check_text", "read", "too_deep"]


_QUOTED = (TokenType.STRING, TokenType.IDENTIFIER)
_VERBS = ("SELECT", "CREATE", "DROP", "ALTER")
_OPTION = "write WITH (name = value, ...), as in WITH (window = '10 minutes')"
_TYPES = "types are BIGINT, DOUBLE, STRING, BOOLEAN, DATE and TIMESTAMP"


class _Unreadable(ParseError):
    """A syntax error with its token; `own` if this dialect raised it, with a hint."""

    def __init__(self, message: str, token: Token | None, hint: str | None = None, own: bool = False) -> None:
        super().__init__(message)
        self.message, self.token, self.hint, self.own = message, token, hint, own


class _TocsinParser(SparkParser):
    """Spark's parser with positions on constants, calls and intervals, and strict definitions."""

    PRIMARY_PARSERS: ClassVar = {
        **SparkParser.PRIMARY_PARSERS,
        TokenType.NULL: lambda self, token: self.expression(exp.Null(), token),
        TokenType.TRUE: lambda self, token: self.expression(exp.Boolean(this=True), token),
        TokenType.FALSE: lambda self, token: self.expression(exp.Boolean(this=False), token),
    }

    # functions of expressions keep their names and arguments as they are written
    FUNCTIONS: ClassVar = {
        name: make for name, make in SparkParser.FUNCTIONS.items() if name.lower() not in COMPUTED_NAMES
    }
    FUNCTION_PARSERS: ClassVar = {
        name: parse
        for name, parse in SparkParser.FUNCTION_PARSERS.items()
        if name.lower() not in COMPUTED_NAMES or name in ("TRIM", "SUBSTRING", "SUBSTR", "POSITION")
    }

    def raise_error(self, message: str, token: Any = None) -> None:
        raise _Unreadable(message, token or self._curr or None)

    def _reject(self, message: str, hint: str, token: Token | None = None) -> NoReturn:
        raise _Unreadable(message, token or self._curr or None, hint, own=True)

    def _parse_as_command(self, start: Token) -> Any:
        self._reject(f"{start.text.upper()} is not supported", "write SELECT, CREATE or DROP", start)

    def _with_span(self, node: Any, first: Token | None) -> Any:
        """The node, with the span of text from `first` to the last token read as its position."""
        if isinstance(node, exp.Expr) and first is not None and self._prev is not None:
            node.meta.update(start=first.start, end=self._prev.end)
        return node

    def _parse_function_call(self, *args: Any, **kwargs: Any) -> Any:
        first = self._curr
        return self._with_span(super()._parse_function_call(*args, **kwargs), first)

    def _parse_interval(self, *args: Any, **kwargs: Any) -> Any:
        first = self._curr
        return self._with_span(super()._parse_interval(*args, **kwargs), first)

    def _parse_placeholder(self) -> Any:
        first = self._curr
        return self._with_span(super()._parse_placeholder(), first)

    def _parse_paren(self) -> Any:
        first = self._curr
        return self._with_span(super()._parse_paren(), first)

    # -- sequences ---------------------------------------------------------------------------------

    def _parse_table_alias(self, *args: Any, **kwargs: Any) -> Any:
        """`FOLLOWED BY` and `WITHIN '...'` after a table are no aliases."""
        follows = self._at("FOLLOWED") and self._next is not None and self._next.text.upper() == "BY"
        return None if follows or self._ends_sequence() else super()._parse_table_alias(*args, **kwargs)

    def _ends_sequence(self) -> bool:
        return self._at("WITHIN") and self._next is not None and self._next.token_type is TokenType.STRING

    def _parse_join(self, *args: Any, **kwargs: Any) -> Any:
        """`FOLLOWED BY table [ON ... | USING (...)] [WITHIN '5 minutes']`; `sequences.py` reads it."""
        if not self._at("FOLLOWED"):
            return super()._parse_join(*args, **kwargs)
        first = self._curr
        self._advance()
        if not self._at("BY"):
            self._reject("expecting BY after FOLLOWED", "write a FOLLOWED BY b ON ... WITHIN '5 minutes'")
        self._advance()
        join = exp.Join(this=self._parse_table(), kind="FOLLOWED BY")
        if self._match(TokenType.ON):
            join.set("on", self._parse_disjunction())
        elif self._match(TokenType.USING):
            join.set("using", self._parse_using_identifiers())
        if self._at("WITHIN"):
            self._advance()
            if self._curr is None or self._curr.token_type is not TokenType.STRING:
                self._reject("expecting a time in quotes after WITHIN", "write WITHIN '5 minutes'")
            within = exp.Literal.string(self._curr.text)
            within.meta.update(start=self._curr.start, end=self._curr.end)
            self._advance()
            join.meta["within"] = within
        return self._with_span(join, first)

    # -- options -----------------------------------------------------------------------------------

    def _parse_table_hints(self) -> Any:
        """`WITH (` after a table's name begins options, not hints."""
        return None if self._at("WITH") else super()._parse_table_hints()

    def _parse_query_modifiers(self, this: Any) -> Any:
        this = super()._parse_query_modifiers(this)
        if isinstance(this, exp.Select) and self._at("WITH"):
            first = self._curr
            self._advance()
            if not self._at("("):
                self._reject("expecting ( after WITH", _OPTION)
            parts = self._wrapped(self._option, "an option", _OPTION)
            this.set("limits", self._with_span(exp.Tuple(expressions=parts), first))
            if self._at("WITH"):
                self._reject("WITH (...) occurs twice", "write all options in one list")
            if self._at("WHERE", "ORDER", "ORDER BY", "LIMIT", "JOIN"):
                self._reject("WITH (...) ends a SELECT", "write it after WHERE, ORDER BY and LIMIT")
        return this

    def _option(self) -> exp.Property:
        """`name = value`; `with_options.py` reads both."""
        name = self._curr
        if (
            not name
            or name.token_type in (TokenType.STRING, TokenType.NUMBER)
            or self._at("(", ")", ",", "=")
        ):
            self._reject("expecting the name of an option", _OPTION)
        self._advance()
        if not self._match(TokenType.EQ):
            self._reject(f"expecting = after {name.text}", _OPTION)
        value = self._curr
        if not self._match_set((TokenType.STRING, TokenType.NUMBER)):
            fact = (
                "parameters are not supported in WITH"
                if self._at(":")
                else f"expecting a value of {name.text}"
            )
            self._reject(fact, "write a text in quotes or a number above 0")
        literal = exp.Literal(this=value.text, is_string=value.token_type is TokenType.STRING)
        literal.meta.update(start=value.start, end=value.end)
        word = exp.Var(this=name.text)
        word.meta.update(start=name.start, end=name.end)
        return exp.Property(this=word, value=literal)

    # -- definitions -------------------------------------------------------------------------------

    def _parse_create(self) -> Any:
        kind = self._kind("CREATE")
        exists = self._if_words("NOT")
        name = self._name(f"the name of the {kind.lower()}")
        columns = self._wrapped(self._definition, "a column") if self._at("(") else []
        made = exp.Create(
            this=exp.Schema(this=exp.Table(this=name), expressions=columns), kind=kind, exists=exists
        )
        properties = []
        while self._at("RETAIN", "PAYLOAD"):
            properties.append(self._retain() if self._at("RETAIN") else self._payload())
        if properties:
            made.set("properties", exp.Properties(expressions=properties))
        return made

    def _payload(self) -> exp.Property:
        """`PAYLOAD (name, ...)`; `ddl.py` looks the columns up."""
        word = self._curr
        self._advance()
        hint = "write names of columns, as in PAYLOAD (photo, text)"
        names = self._wrapped(lambda: self._name("a payload column"), "a payload column", hint)
        found = self._with_span(exp.Property(this="PAYLOAD", value=exp.Tuple(expressions=names)), word)
        if self._at("PAYLOAD"):
            self._reject("PAYLOAD occurs twice", "name all columns in one list")
        if self._at("KEY"):
            self._reject("PAYLOAD has no KEY", "leave it out: rows are known by the table's PRIMARY KEY")
        return found

    def _retain(self) -> exp.Property:
        """`RETAIN 'duration'`; `ddl.py` reads the duration."""
        word = self._curr
        self._advance()
        value = self._curr
        if not self._match(TokenType.STRING):
            hint = "write it in quotes: RETAIN '10 minutes'"
            self._reject("expecting a duration after RETAIN", hint, value or word)
        if self._at("RETAIN"):
            self._reject("RETAIN occurs twice", "give one duration, as in RETAIN '1 hour 30 minutes'")
        if self._at("("):
            self._reject("columns come before RETAIN", "write CREATE STREAM name (...) RETAIN '10 minutes'")
        duration = self._with_span(exp.Literal.string(value.text), value)
        return self._with_span(exp.Property(this="RETAIN", value=duration), word)

    def _parse_drop(self, exists: bool = False, kind: str | None = None) -> Any:
        kind = self._kind("DROP")
        there = self._if_words()
        name = self._name(f"the name of the {kind.lower()}")
        return exp.Drop(this=exp.Table(this=name), kind=kind, exists=there)

    def _at(self, *texts: str) -> bool:
        token = self._curr
        return bool(token) and token.token_type not in _QUOTED and token.text.upper() in texts

    def _kind(self, verb: str) -> str:
        kind = next((kind for kind in ("TABLE", "STREAM") if self._match_text_seq(kind)), None)
        if kind is None and self._at("OR"):
            self._reject("CREATE OR REPLACE is not supported", "DROP it first, then CREATE it")
        if kind is None:
            self._reject(f"expecting {verb} TABLE or {verb} STREAM", "only tables and streams can be defined")
        return kind

    def _name(self, what: str) -> exp.Identifier:
        name = self._parse_id_var(any_token=False)
        if not isinstance(name, exp.Identifier):
            self._reject(f"expecting {what}", "put names that are not plain words in backticks")
        if self._at("."):
            self._reject("a name has one part", "put a name with a dot in it in backticks")
        return name

    def _wrapped(self, item: Callable[[], exp.Expr], what: str, hint: str | None = None) -> list[exp.Expr]:
        """`(item, ...)`"""
        hint = hint or f"{_TYPES}; NOT NULL, DEFAULT and PRIMARY KEY may follow a type"
        if not self._match(TokenType.L_PAREN):
            self._reject(f"expecting ( before {what}", "write lists in parentheses")
        items = [item()]
        while self._match(TokenType.COMMA):
            items.append(item())
        if not self._match(TokenType.R_PAREN):
            self._reject(f"expecting , or ) after {what}", hint)
        return items

    STATEMENT_PARSERS: ClassVar = {
        **SparkParser.STATEMENT_PARSERS, TokenType.ALTER: lambda self: self._parse_alter(),
    }  # fmt: skip

    def _definition(self) -> exp.Expr:
        """`name TYPE [NOT NULL] [DEFAULT constant] [PRIMARY KEY]` or `PRIMARY KEY (name, ...)`."""
        token = self._curr
        if self._at(")"):
            self._reject("a column is missing before )", "name a column, or leave out the comma")
        if self._match(TokenType.PRIMARY_KEY):
            key = exp.PrimaryKey(
                expressions=self._wrapped(lambda: self._name("a key column"), "a key column")
            )
            return self._with_span(key, token)
        name = self._name("the name of a column")
        if not self._curr or self._at(",", ")"):
            self._reject(f"column {name.name!r} has no type", _TYPES)
        token = self._curr
        self._advance()
        kind = exp.Var(this=token.text)
        if self._at("("):
            kind.set("this", f"{token.text}({', '.join(self._size())})")
        column = exp.ColumnDef(this=name, kind=self._with_span(kind, token))
        constraints = []
        while (found := self._column_constraint()) is not None:
            constraints.append(found)
        column.set("constraints", constraints)
        return column

    def _size(self) -> list[str]:
        """The numbers in parentheses behind a type."""
        hint = "write VARCHAR(20)"
        return [number.name for number in self._wrapped(lambda: self._number(hint), "a size", hint)]

    def _number(self, hint: str) -> exp.Expr:
        number = self._parse_number()
        if not isinstance(number, exp.Literal):
            self._reject("expecting a number", hint)
        return number

    def _column_constraint(self) -> exp.Expr | None:
        """`PRIMARY KEY`, `NOT NULL`, `NULL` or `DEFAULT constant`, which `ddl.py` reads."""
        token = self._curr
        if self._match(TokenType.PRIMARY_KEY):
            return self._with_span(exp.PrimaryKeyColumnConstraint(), token)
        if self._at("NOT") and self._match(TokenType.NOT):
            if not self._match(TokenType.NULL):
                self._reject("expecting NULL after NOT", "write NOT NULL")
            return self._with_span(exp.NotNullColumnConstraint(), token)
        if self._at("NULL") and self._match(TokenType.NULL):
            return self._with_span(exp.NotNullColumnConstraint(allow_null=True), token)
        if self._at("DEFAULT"):
            self._advance()
            value = self._parse_unary()
            if value is None:
                self._reject("expecting a constant after DEFAULT", "write DEFAULT 0 or DEFAULT 'text'")
            return self._with_span(exp.DefaultColumnConstraint(this=value), token)
        return None

    def _parse_alter(self) -> Any:
        """`ALTER TABLE name ADD [COLUMN] [IF NOT EXISTS] column`."""
        if not self._match_text_seq("TABLE"):
            self._reject("expecting ALTER TABLE", "write ALTER TABLE name ADD COLUMN column TYPE")
        name = self._name("the name of the table")
        if not self._match_text_seq("ADD"):
            self._reject("expecting ADD COLUMN", "write ALTER TABLE name ADD COLUMN column TYPE")
        _ = self._match_text_seq("COLUMN") or self._match_text_seq("COLUMNS")
        exists = self._if_words("NOT")
        columns = self._wrapped(self._definition, "a column") if self._at("(") else [self._definition()]
        return exp.Alter(this=exp.Table(this=name), kind="TABLE", actions=columns, exists=exists)

    def _if_words(self, *words: str) -> bool:
        """Whether IF [NOT] EXISTS stands here."""
        if not self._at("IF"):
            return False
        self._advance()
        for word in (*words, "EXISTS"):
            if not self._match_text_seq(word):
                self._reject(f"expecting {' '.join(('IF', *words, 'EXISTS'))}", "leave it out")
        return True


class TocsinDialect(Spark):
    """Spark's SQL, with streams."""

    SUPPORTS_ORDER_BY_ALL = False  # it would read a column `all` as the keyword

    class Tokenizer(Spark.Tokenizer):
        STRING_ESCAPES: ClassVar = ["\\", "'", '"']

    Parser = _TocsinParser


_DIALECT = TocsinDialect()


@dataclass(frozen=True, slots=True)
class SourceText:
    """A text and its tokens."""

    text: str
    tokens: tuple[Token, ...]

    def at(self, node: exp.Expr | None) -> Position:
        """The position of a node, from its first to its last token; the whole text if unknown."""
        spans = list(_spans(node)) if node is not None else []
        if not spans:
            return Position(self.text, 0, len(self.text.rstrip()))
        start, end = min(s for s, _ in spans), max(e for _, e in spans) + 1
        if isinstance(node, exp.Neg) and "start" not in node.meta:
            start = max((t.start for t in self.tokens if t.start < start), default=start)
        return Position(self.text, start, end)

    def token(self, *words: str, after: int = 0) -> Position:
        """The first token from an offset on that equals one of the words; earlier words take precedence."""
        plain = [t for t in self.tokens if t.start >= after and t.token_type not in _QUOTED]
        for word in words:
            for token in plain:
                if token.text.upper() == word:
                    return Position(self.text, token.start, token.end + 1)
        return Position(self.text, 0, len(self.text.rstrip()))

    def error(self, fact: str, where: exp.Expr | Position | None, hint: str | None = None) -> SqlError:
        """An error at a node or position, for the caller to raise."""
        return SqlError(fact, where if isinstance(where, Position) else self.at(where), hint)


def _spans(node: exp.Expr) -> Iterator[tuple[int, int]]:
    for part in node.walk():
        meta = part.meta if part._meta else {}
        if "start" in meta:
            yield meta["start"], meta["end"]


def check_text(text: object, what: str = "a subscription") -> None:
    """Raise SqlError unless the value is text that UTF-8 can encode (no half surrogate pair)."""
    if not isinstance(text, str):
        raise SqlError(f"{what} is text, not {type(text).__name__}", None, "give it as a str")
    if text.isascii():
        return
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        shown = _HALF.sub("\ufffd", text)  # so that the error can be printed
        raise SqlError(
            f"\\u{ord(text[error.start]):04x} is half of a character",
            Position(shown, error.start, error.start + 1),
            "write both halves of the surrogate pair",
        ) from None


_HALF = re.compile("[\ud800-\udfff]")


def read(text: str, what: str = "a subscription") -> tuple[list[exp.Expr], SourceText]:
    """Parse a text into sqlglot's trees, one per statement, and its tokens with positions."""
    check_text(text, what)
    tokens: list[Token] = []
    try:
        tokens = _DIALECT.tokenize(text)
        source = SourceText(text, tuple(tokens))
        trees = [tree for tree in with_deep_stack(_parse, source) if tree is not None]
    except _Unreadable as error:
        raise _syntax_error(text, error, tokens) from None
    except TokenError:
        raise _token_error(text) from None
    except ParseError as error:
        raise SqlError(f"syntax error: {_first_line(str(error))}", _end(text)) from None
    except RecursionError:
        raise too_deep(text) from None
    return [tree for tree in trees if not isinstance(tree, exp.Semicolon)], source


def _parse(source: SourceText) -> list[exp.Expr | None]:
    if len(source.tokens) > MAX_LEVELS:
        _check_nesting(source)
    return _DIALECT.parser().parse(list(source.tokens), source.text)


def _check_nesting(source: SourceText) -> None:
    """Raise SqlError at the first parenthesis or NOT nested more than `MAX_LEVELS` deep."""
    depth = row = 0
    for token in source.tokens:
        row = row + 1 if token.token_type is TokenType.NOT else 0
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if max(depth, row) > MAX_LEVELS:
            raise too_deep(source.text, Position(source.text, token.start, token.end + 1))


def too_deep(text: str, position: Position | None = None) -> SqlError:
    """The error for a text that nests more than `MAX_LEVELS` deep."""
    fact = f"the text is nested too deeply: at most {MAX_LEVELS} levels are supported"
    return SqlError(fact, position or _end(text), "write it flatter")


def _end(text: str) -> Position:
    last = max(len(text.rstrip()) - 1, 0)
    return Position(text, last, last + 1)


def _first_line(message: str) -> str:
    line = message.splitlines()[0].rstrip(".")
    return line[:1].lower() + line[1:]


def _syntax_error(text: str, error: _Unreadable, tokens: Sequence[Token]) -> SqlError:
    token = error.token
    if error.own:
        return SqlError(error.message, _position(text, token), error.hint)
    message = _first_line(error.message)
    first = text.split(None, 1)[0]
    hint = None
    if first.upper() not in ("CREATE", "DROP"):
        token, hint = syntax_hint(tokens, token, message)
    position = _position(text, token)
    where = "the end of the text" if token is None else repr(text[position.start : position.end])
    expected = f": {message}" if message.startswith("expecting") and token is error.token else ""
    near = [] if first.upper() in _VERBS else difflib.get_close_matches(first.upper(), _VERBS, 1)
    return SqlError(
        f"syntax error at {where}{expected}", position, f"did you mean {near[0]}?" if near else hint
    )


def _position(text: str, token: Token | None) -> Position:
    return _end(text) if token is None else Position(text, token.start, token.end + 1)


def _token_error(text: str) -> SqlError:
    """Find the first unclosed quote or comment; sqlglot does not report where it is."""
    for match in _CLOSED.finditer(text):
        if match.lastgroup == "open":
            what, end = _CLOSERS[match[0]]
            return SqlError(
                f"this {what} is not closed",
                Position(text, match.start(), match.end()),
                f"close it with {end}" + ("; write a quote inside twice: 'it''s'" if end == "'" else ""),
            )
    return SqlError("the text cannot be split into tokens", _end(text))


_CLOSED = re.compile(
    r"""--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|(?P<open>/\*|['"`])""", re.DOTALL
)
_CLOSERS = {"'": ("string", "'"), '"': ("string", '"'), "`": ("quoted name", "`"), "/*": ("comment", "*/")}
