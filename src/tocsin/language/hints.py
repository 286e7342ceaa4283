"""Hints for conditions and clauses that are not supported: what to write instead, so that it works.

>>> import sqlglot
>>> tree = sqlglot.parse_one("SELECT * FROM t WHERE price / 2 > 100 AND price * qty > 5", read="spark")
>>> one, two = tree.args["where"].this.unnest_operands()
>>> arithmetic_hint(one.this)
'write price > 200'
>>> arithmetic_hint(two.this)
'add a column with the result to the rows, and compare that with a constant'
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from fractions import Fraction

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

__all__ = [
    "arithmetic_hint",
    "condition_hint",
    "function_hint",
    "nearest",
    "syntax_hint",
    "window_hint",
]

_SIGNS: dict[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
_NOW = (exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentTime, exp.CurrentDatetime)
_TIME_HINT = "write the time itself, as in TIMESTAMP '2025-12-31 23:59:59'"
_COMPUTED = "add a column with the result to the rows, and compare that with a constant"
_PLAIN = "write: column operator constant"


def arithmetic_hint(node: exp.Expr) -> str:
    """For arithmetic in a condition: solved for its column if it has one, computed if it has none."""
    if node.find(exp.Interval, *_NOW):
        return _TIME_HINT
    columns = list(node.find_all(exp.Column))
    if not columns:
        result = _number(node)
        return f"write the result{'' if result is None else f': {_written(result)}'}"
    solved = _solved(node) if len(columns) == 1 else None
    return _COMPUTED if solved is None else f"write {solved}"


_PLAIN_NUMBER = re.compile(r"[0-9]{0,15}(\.[0-9]{0,15})?(?<=[0-9])")  # no exponent, which may be vast


def _solved(node: exp.Expr) -> str | None:
    """`column operator constant` for arithmetic of one column and one number, compared with a number."""
    top = node.parent
    while isinstance(top, exp.Paren):
        top = top.parent
    sign = None if top is None else _SIGNS.get(type(top))
    if sign is None or top is None:
        return None
    left, right = top.this.unnest(), top.args["expression"].unnest()
    bound = _number(right if left is node else left)
    sign = sign if left is node else _TURNED[sign]
    a, b = node.this.unnest(), node.args.get("expression")
    first, second = _number(a), _number(b) if b is not None else None
    if bound is None or (first is None) == (second is None) or b is None:
        return None
    column = (a if second is not None else b.unnest()).sql()
    number = second if second is not None else first
    assert number is not None
    if isinstance(node, exp.Add):
        bound -= number
    elif isinstance(node, exp.Sub):
        bound, sign = (bound + number, sign) if second is not None else (number - bound, _TURNED[sign])
    elif isinstance(node, exp.Mul | exp.Div) and number and (second is not None or isinstance(node, exp.Mul)):
        bound = bound / number if isinstance(node, exp.Mul) else bound * number
        sign = sign if number > 0 else _TURNED[sign]
    else:
        return None
    return f"{column} {sign} {_written(bound)}"


def _number(node: exp.Expr | None) -> Fraction | None:
    """The value of numbers and arithmetic of numbers."""
    if node is None:
        return None
    node = node.unnest()
    if isinstance(node, exp.Literal) and not node.is_string:
        return Fraction(str(node.this)) if _PLAIN_NUMBER.fullmatch(str(node.this)) else None
    if isinstance(node, exp.Neg):
        inner = _number(node.this)
        return None if inner is None else -inner
    if not isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Div):
        return None
    a, b = _number(node.this), _number(node.args["expression"])
    if a is None or b is None or (isinstance(node, exp.Div) and not b):
        return None
    return (
        {exp.Add: a + b, exp.Sub: a - b, exp.Mul: a * b}[type(node)] if type(node) is not exp.Div else a / b
    )


def _written(number: Fraction) -> str:
    return str(number.numerator) if number.denominator == 1 else repr(float(number))


def function_hint(node: exp.Expr) -> str:
    """For a function call in a condition."""
    if isinstance(node, _NOW) or node.name.lower() in ("now", "current_timestamp", "current_date"):
        return _TIME_HINT
    columns = list(node.find_all(exp.Column))
    name = columns[0].sql() if columns else "column"
    if isinstance(node, exp.Upper | exp.Lower):
        return f"to ignore case: {name} RLIKE '(?i)^text$'"
    called = str(node.this).lower() if isinstance(node, exp.Anonymous) else node.key
    likes = {"contains": "%text%", "startswith": "text%", "endswith": "%text", "strposition": "%text%"}
    if called in likes:
        return f"write {name} LIKE '{likes[called]}'"
    if isinstance(node, exp.Abs):
        return f"write both sides: {name} > 3 OR {name} < -3"
    if isinstance(node, exp.Coalesce):
        return f"write {name} IS NULL OR {name} = ..."
    return _COMPUTED if columns else _PLAIN


def condition_hint(node: exp.Expr) -> str:
    """For a condition where a column or a constant is needed."""
    return "between conditions, write OR" if node.find(exp.DPipe) else _PLAIN


def window_hint(node: exp.Expr) -> str:
    """For `function OVER (...)`."""
    if isinstance(node.this, exp.AggFunc) and type(node.this) in (
        exp.Count,
        exp.Sum,
        exp.Avg,
        exp.Min,
        exp.Max,
    ):
        return "leave out OVER (...), and have the aggregate alone in SELECT"
    return (
        "the first n rows of a table are ORDER BY column LIMIT n; of each group, "
        "QUALIFY ROW_NUMBER() OVER (PARTITION BY column ORDER BY column) <= n"
    )


def nearest(name: str, names: Iterable[str]) -> str | None:
    """A hint with the most similar name, if one is similar."""
    by_lower = {n.lower(): n for n in names}
    close = difflib.get_close_matches(name.lower(), list(by_lower), n=1, cutoff=0.6)
    return f"did you mean {by_lower[close[0]]!r}?" if close else None


# -- syntax errors -----------------------------------------------------------------------------------

_WORDS = (
    "SELECT",
    "FROM",
    "WHERE",
    "ORDER",
    "LIMIT",
    "JOIN",
    "BETWEEN",
    "LIKE",
    "RLIKE",
    "USING",
    "DISTINCT",
)
_OTHERS = {
    "MATCHES": "write RLIKE '...'",
    "~": "write RLIKE '...'",
    "CONTAINS": "write LIKE '%...%'",
    "STARTS": "write LIKE '...%'",
    "ENDS": "write LIKE '%...'",
    "&&": "write AND",
    "TOP": "write ORDER BY column LIMIT n at the end",
    "EMIT": "leave it out: every subscription emits changes",
    "STREAM": "leave it out: every subscription is a stream of changes",
}
_ENDS = {
    "WHERE": "write a condition after WHERE",
    "AND": "write a condition after AND",
    "OR": "write a condition after OR",
    "NOT": "write a condition after NOT",
    "FROM": "name a stream or table after FROM",
    "BETWEEN": "write BETWEEN low AND high",
}


def syntax_hint(tokens: Sequence[Token], at: Token | None, message: str) -> tuple[Token | None, str | None]:
    """The token that is probably wrong, and a hint; (at, None) if nothing is known.

    The parser stops one or two tokens after a misspelt word, because that was read as an alias.
    """
    place = next((i for i, token in enumerate(tokens) if token is at or token == at), len(tokens))
    near = tokens[max(0, place - 2) : place + 1][::-1]
    for token in near:
        if token.text.upper() in _OTHERS and token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER):
            return token, _OTHERS[token.text.upper()]
    for token in near:
        known = token.token_type is TokenType.VAR and len(token.text) > 2
        close = difflib.get_close_matches(token.text.upper(), _WORDS, 1, cutoff=0.7) if known else []
        if close and close[0] != token.text.upper():
            return token, f"did you mean {close[0]}?"
    if at is None and tokens:
        last = tokens[-1].text.upper()
        if last in _ENDS:
            return at, _ENDS[last]
        if len(tokens) > 1 and tokens[-2].text.upper() == "BETWEEN":
            return at, _ENDS["BETWEEN"]
        if "expecting )" in message:
            return at, "close the parenthesis"
    return at, None
