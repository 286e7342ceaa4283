"""The syntax of CESQL, the expression language of CloudEvents: a text as a tree, which prints back as text.

    expression ── Literal | Attribute | Present(EXISTS) | FunctionCall | Unary | Binary
                  | LikeTest | Within(IN)

Operators bind as in the grammar of the specification: NOT and minus first, then LIKE and IN, `* / %`, `+ -`,
comparisons, and AND, OR and XOR alike, from right to left. Words are read without regard to case, and names
of attributes are in small letters.

>>> print(parsed("int(hop) < ttl AND NOT source LIKE 'a%'"))
((INT(hop) < ttl) AND ((NOT source) LIKE 'a%'))
>>> parsed("ABC(")
Traceback (most recent call last):
tocsin.rules.cesql_syntax.SyntaxFault: column 5: an expression is expected here
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

__all__ = [
    "HIGHEST",
    "LOWEST",
    "Attribute",
    "Binary",
    "Expression",
    "FunctionCall",
    "LikeTest",
    "Literal",
    "Present",
    "SyntaxFault",
    "Unary",
    "Within",
    "parsed",
]  # fmt: skip

LOWEST, HIGHEST = -(2**31), 2**31 - 1
_DEEPEST = 60  # expressions inside each other
_TOKEN = re.compile(
    r"""[ \t\r\n]*(?:(?P<text>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")|(?P<word>[A-Za-z0-9_]+)"""
    r"""|(?P<sign>!=|<>|>=|<=|[=<>+\-*/%(),])|(?P<end>$))""",
    re.DOTALL,
)
_WORDS = frozenset("AND OR XOR NOT LIKE EXISTS IN TRUE FALSE".split())
_LOGIC = frozenset(("AND", "OR", "XOR"))
_LEVELS = ({"=", "!=", "<>", "<", "<=", ">", ">="}, {"+", "-"}, {"*", "/", "%"})


class SyntaxFault(ValueError):
    """A text that is no expression: where, and what is expected."""

    def __init__(self, column: int, found: str, reason: str) -> None:
        super().__init__(f"column {column}: {reason}")
        self.column, self.found, self.reason = column, found, reason


@dataclass(frozen=True, slots=True)
class Literal:
    """A text, a number or a boolean."""

    value: str | int | bool

    def __str__(self) -> str:
        if not isinstance(self.value, str):
            return str(self.value).upper()
        return "'" + re.sub(r"(\\.)|(')", lambda m: m[1] or r"\'", self.value, flags=re.DOTALL) + "'"


@dataclass(frozen=True, slots=True)
class Attribute:
    """The value of an attribute of the event."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Present:
    """`EXISTS name`."""

    name: str

    def __str__(self) -> str:
        return f"(EXISTS {self.name})"


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function of arguments; `column` is its place in the text."""

    name: str
    args: tuple[Expression, ...]
    column: int = 0

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.args))})"


@dataclass(frozen=True, slots=True)
class Unary:
    """`NOT x` or `-x`."""

    op: str
    arg: Expression

    def __str__(self) -> str:
        return f"({self.op} {self.arg})"


@dataclass(frozen=True, slots=True)
class Binary:
    """`left op right`."""

    left: Expression
    op: str
    right: Expression

    def __str__(self) -> str:
        return f"({self.left} {self.op} {self.right})"


@dataclass(frozen=True, slots=True)
class LikeTest:
    """`arg [NOT] LIKE pattern`."""

    arg: Expression
    pattern: str
    negated: bool

    def __str__(self) -> str:
        return f"({self.arg} {'NOT ' * self.negated}LIKE {Literal(self.pattern)})"


@dataclass(frozen=True, slots=True)
class Within:
    """`arg [NOT] IN (one, ...)`."""

    arg: Expression
    among: tuple[Expression, ...]
    negated: bool

    def __str__(self) -> str:
        return f"({self.arg} {'NOT ' * self.negated}IN ({', '.join(map(str, self.among))}))"


Expression = Literal | Attribute | Present | FunctionCall | Unary | Binary | LikeTest | Within


class _Token(NamedTuple):
    kind: str  # text, word, sign, end
    text: str  # words in capitals where they are words of the language
    column: int
    raw: str


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while True:
        match = _TOKEN.match(text, at)
        if match is None:
            rest = text[at:].lstrip()
            fact = "the text does not end" if rest[:1] in ("'", '"') else "this character means nothing here"
            raise SyntaxFault(len(text) - len(rest) + 1, rest[:1], fact)
        kind = str(match.lastgroup)
        raw = match[kind]
        upper = raw.upper()
        yield _Token(kind, upper if kind == "word" and upper in _WORDS else raw, match.start(kind) + 1, raw)
        if kind == "end":
            return
        at = match.end()


@lru_cache(maxsize=1 << 12)
def parsed(text: str) -> Expression:
    """The expression of a text; SyntaxFault if it is none."""
    reader = _TokenReader(list(_tokens(text)))
    found = reader.expression()
    reader.expect("end", "", "an operator or the end is expected here")
    return found


class _TokenReader:
    """Reads tokens from left to right."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens, self._at, self._depth = tokens, 0, 0

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _fault(self, reason: str) -> SyntaxFault:
        return SyntaxFault(self._next.column, self._next.raw, reason)

    def _is(self, kind: str, *texts: str) -> bool:
        return self._next.kind == kind and self._next.text in texts

    def expect(self, kind: str, text: str, reason: str) -> _Token:
        """Take a token, which must be this one."""
        if not self._is(kind, text):
            raise self._fault(reason)
        return self._take()

    def expression(self) -> Expression:
        """The whole of an expression: AND, OR and XOR bind alike, from right to left."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._fault(f"expressions nest at most {_DEEPEST} deep")
        parts, ops = [self._level(0)], []
        while self._is("word", *_LOGIC):
            ops.append(self._take().text)
            parts.append(self._level(0))
        found = parts.pop()
        while parts:
            found = Binary(parts.pop(), ops.pop(), found)
        self._depth -= 1
        return found

    def _level(self, level: int) -> Expression:
        if level == len(_LEVELS):
            return self._tested()
        found = self._level(level + 1)
        while self._is("sign", *_LEVELS[level]):
            op = self._take().text
            found = Binary(found, "!=" if op == "<>" else op, self._level(level + 1))
        return found

    def _tested(self) -> Expression:
        """An operand, with LIKE and IN behind it."""
        found = self._operand()
        while self._is("word", "NOT", "LIKE", "IN"):
            negated = self._is("word", "NOT")
            if negated:
                self._take()
            if self._is("word", "LIKE"):
                self._take()
                if self._next.kind != "text":
                    raise self._fault("LIKE takes a pattern in quotes")
                found = LikeTest(found, _unquoted(self._take().raw), negated)
            elif self._is("word", "IN"):
                self._take()
                self.expect("sign", "(", "IN takes a list in parentheses")
                found = Within(found, self._list(empty=False), negated)
            else:
                raise self._fault("LIKE or IN is expected here")
        return found

    def _operand(self) -> Expression:
        token = self._next
        if token.kind == "text":
            return Literal(_unquoted(self._take().raw))
        if token.kind == "word":
            return self._word()
        if self._is("sign", "("):
            self._take()
            found = self.expression()
            self.expect("sign", ")", "a closing parenthesis is expected here")
            return found
        if self._is("sign", "-", "+"):
            return self._signed()
        raise self._fault("an expression is expected here")

    def _signed(self) -> Expression:
        sign = self._take()
        token = self._next
        if token.kind == "word" and token.raw.isdigit() and token.column == sign.column + 1:
            return self._number(sign.text)
        if sign.text == "+":
            raise self._fault("a number is expected after the sign")
        return Unary("-", self._nested_operand())

    def _nested_operand(self) -> Expression:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._fault(f"expressions nest at most {_DEEPEST} deep")
        found = self._operand()
        self._depth -= 1
        return found

    def _number(self, sign: str = "") -> Literal:
        token = self._take()
        value = int(sign + token.raw) if len(token.raw) < 20 else HIGHEST + 1
        if not LOWEST <= value <= HIGHEST:
            raise SyntaxFault(token.column, token.raw, "whole numbers have 32 bits")
        return Literal(value)

    def _word(self) -> Expression:
        token = self._next
        if token.raw.isdigit():
            return self._number()
        self._take()
        if token.text == "NOT":
            return Unary("NOT", self._nested_operand())
        if token.text in ("TRUE", "FALSE"):
            return Literal(token.text == "TRUE")
        if token.text == "EXISTS":
            return Present(self._name())
        if token.text in _WORDS:
            raise SyntaxFault(token.column, token.raw, "an expression is expected here")
        if self._is("sign", "("):
            if any(letter.isdigit() for letter in token.raw):
                raise SyntaxFault(token.column, token.raw, "names of functions have letters and _ only")
            self._take()
            return FunctionCall(token.raw.upper(), self._list(empty=True), token.column)
        self._at -= 1
        return Attribute(self._name())

    def _name(self) -> str:
        token = self._next
        if token.kind != "word" or token.text in _WORDS or token.raw.isdigit() or "_" in token.raw:
            raise self._fault("the name of an attribute is expected here: letters and digits")
        return self._take().raw.lower()

    def _list(self, *, empty: bool) -> tuple[Expression, ...]:
        """Expressions with commas between them, up to the closing parenthesis."""
        if empty and self._is("sign", ")"):
            self._take()
            return ()
        found = [self.expression()]
        while self._is("sign", ","):
            self._take()
            found.append(self.expression())
        self.expect("sign", ")", "a comma or a closing parenthesis is expected here")
        return tuple(found)


def _unquoted(raw: str) -> str:
    """The text in quotes; a backslash is for these quotes only."""
    quote = raw[0]
    return re.sub(r"\\(.)", lambda m: m[1] if m[1] == quote else m[0], raw[1:-1], flags=re.DOTALL)
