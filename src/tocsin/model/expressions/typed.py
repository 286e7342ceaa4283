"""Types of expressions: from a tree and the types of its columns to a tree that can be computed.

Every call gets the overload that fits its arguments with the least conversion, and conversions become casts.
A kind None is that of NULL; ANY is that of an attribute of an open stream before there is an event.

>>> from tocsin.model.expressions.tree import CallNode, ConstantNode, Ref
>>> tree = CallNode("*", (Ref("price"), Ref("qty")))
>>> typed = resolve(tree, {"price": Type.DOUBLE, "qty": Type.BIGINT})
>>> typed.kind, compute(typed, (2.5, 4))
(<Type.DOUBLE: 'DOUBLE'>, 10.0)
>>> resolve(tree, {"price": Type.DOUBLE, "qty": Type.DATE})
Traceback (most recent call last):
...
ValueError: * does not take DOUBLE and DATE
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from functools import cache, partial
from typing import Any

from tocsin.model.decimals import units_of
from tocsin.model.expressions import decimals
from tocsin.model.expressions.casts import SIZES, narrowed, narrowed_exactly
from tocsin.model.expressions.decimals import of_value, widest
from tocsin.model.expressions.numbers import number_order
from tocsin.model.expressions.overloads import CASTS, EXACT_CASTS, INTERVAL, OVERLOADS, Kind, Overload, Run
from tocsin.model.expressions.tree import CallNode, ConstantNode, Expression, Interval, Ref, refs_of
from tocsin.model.schema import Type

__all__ = [
    "ANY",
    "COMPARISONS",
    "FUNCTIONS",
    "Typed",
    "cast_to",
    "common",
    "compute",
    "constant",
    "kind_of_constant",
    "resolve",
    "type_of_into",
    "typed_call",
]

ANY = "ANY"
COMPARISONS = ("=", "!=", "<", "<=", ">", ">=", "<=>")
_OWN = {
    "and", "or", "not", "isnull", "istrue", "isfalse", "isnan", "case", "coalesce", "in", "greatest",
    "least",
}  # fmt: skip
FUNCTIONS = {*OVERLOADS, "coalesce", "greatest", "least", "isnan"}


@dataclass(frozen=True, slots=True, eq=False)
class Typed:
    """An expression that can be computed: a constant, a column by its place, or a call.

    `run` computes a call of values; unless it is `lazy` it never sees a NULL: then the result is NULL.
    """

    kind: Kind | None
    run: Run | None = None
    args: tuple[Typed, ...] = ()
    lazy: bool = False
    place: int = -1
    value: Any = None
    name: str = field(default="")

    @property
    def is_constant(self) -> bool:
        return self.run is None and self.place < 0


# -- one value -----------------------------------------------------------------------------------------


def compute(typed: Typed, values: Sequence[Any]) -> Any:
    """The value for a row; values are as vectors store them, None is NULL."""
    if typed.run is None:
        return typed.value if typed.place < 0 else values[typed.place]
    if typed.lazy:
        return typed.run(*[partial(compute, arg, values) for arg in typed.args])
    given = []
    for arg in typed.args:
        value = compute(arg, values)
        if value is None:
            return None
        given.append(value)
    return typed.run(*given)


_Lazy = Callable[[], Any]


def _and(*args: _Lazy) -> bool | None:
    found: bool | None = True
    for arg in args:
        truth = arg()
        if truth is False:
            return False
        found = None if truth is None else found
    return found


def _or(*args: _Lazy) -> bool | None:
    found: bool | None = False
    for arg in args:
        truth = arg()
        if truth is True:
            return True
        found = None if truth is None else found
    return found


def _is_null(arg: _Lazy) -> bool:
    return arg() is None


def _is_nan(arg: _Lazy) -> bool:
    value = arg()
    return value is not None and value != value


def _is_true(arg: _Lazy) -> bool:
    return arg() is True


def _is_false(arg: _Lazy) -> bool:
    return arg() is False


def _case(*args: _Lazy) -> Any:
    for n in range(0, len(args) - 1, 2):
        if args[n]() is True:
            return args[n + 1]()
    return args[-1]()


def _coalesce(*args: _Lazy) -> Any:
    return next((value for arg in args if (value := arg()) is not None), None)


def _in(value: _Lazy, *others: _Lazy) -> bool | None:
    own = value()
    if own is None:
        return None
    given = [other() for other in others]
    if any(one is not None and number_order(own, one) == 0 for one in given):
        return True
    return None if None in given else False


def _greatest(*args: _Lazy) -> Any:
    return _extreme(args, 1)


def _least(*args: _Lazy) -> Any:
    return _extreme(args, -1)


def _extreme(args: Sequence[_Lazy], wanted: int) -> Any:
    best = None
    for arg in args:
        value = arg()
        if value is not None and (best is None or number_order(value, best) == wanted):
            best = value
    return best


def _not(value: bool) -> bool:
    return not value


def _same_value(one: _Lazy, other: _Lazy) -> bool:
    a, b = one(), other()
    return a is b if a is None or b is None else number_order(a, b) == 0


_ORDERS: dict[str, Callable[[int], bool]] = {
    "=": lambda order: order == 0,
    "!=": lambda order: order != 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}


def _compared(op: str) -> Run:
    holds = _ORDERS[op]
    return lambda a, b: holds(number_order(a, b))


_COMPARED = {op: _compared(op) for op in _ORDERS}
_LAZY: dict[str, Run] = {
    "and": _and, "or": _or, "isnull": _is_null, "isnan": _is_nan, "istrue": _is_true, "isfalse": _is_false,
    "case": _case, "coalesce": _coalesce, "in": _in, "greatest": _greatest, "least": _least,
}  # fmt: skip


# -- types ---------------------------------------------------------------------------------------------


def kind_of_constant(value: Any) -> Kind | None:
    """The type of a constant."""
    if value is None:
        return None
    if isinstance(value, Interval):
        return INTERVAL
    if isinstance(value, Decimal):
        return of_value(value)
    kinds: dict[type, Type] = {bool: Type.BOOLEAN, int: Type.BIGINT, float: Type.DOUBLE, str: Type.STRING}
    found = kinds.get(type(value))
    return found if found is not None else Type.DATE if type(value) is date else Type.TIMESTAMP


def constant(value: Any) -> Typed:
    """A constant, as vectors store it."""
    from tocsin.model.columns import stored

    kind = kind_of_constant(value)
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        raise ValueError(f"{value} is beyond the range of BIGINT")
    return Typed(kind, value=stored(kind, value) if isinstance(kind, Type) else value)


def resolve(tree: Expression, types: Mapping[str, Kind | None]) -> Typed:
    """The typed tree; the columns' values come in the order of `refs_of`. ValueError: types do not fit."""
    places = {ref: n for n, ref in enumerate(refs_of(tree))}

    def of(part: Expression) -> Typed:
        if isinstance(part, Ref):
            return Typed(types[part.name], place=places[part])
        if isinstance(part, ConstantNode):
            return constant(part.value)
        return typed_call(part, [of(arg) for arg in part.args])

    return of(tree)


def typed_call(call: CallNode, args: Sequence[Typed]) -> Typed:
    """A call of typed arguments. ValueError: they do not fit."""
    name = call.name
    if call.into:
        return _cast_call(call, args[0])
    if any(isinstance(arg.kind, Type) and arg.kind.is_decimal for arg in args):
        args = _with_decimal_constants(name, args)
        found = _of_decimals(name, args)
        if found is not None:
            return found
    if name in COMPARISONS:
        return _comparison(name, args)
    if name in _OWN:
        return _own(name, args)
    if name == "-" and len(args) == 2 and args[1].kind == INTERVAL and args[1].is_constant:
        negative = Interval(*(-part for part in args[1].value))
        return typed_call(CallNode("+", call.args), [args[0], Typed(INTERVAL, value=negative)])
    if name == "+" and len(args) == 2:
        args = _with_interval(args)
    return _overloaded(name, args)


_BESIDE_DECIMALS = (
    *decimals.ARITHMETIC, *COMPARISONS, "in", "coalesce", "greatest", "least", "case",
)  # fmt: skip


def _with_decimal_constants(name: str, args: Sequence[Typed]) -> Sequence[Typed]:
    """Constants with a fraction beside DECIMALs are DECIMALs."""
    if name not in _BESIDE_DECIMALS:
        return args
    out = []
    for arg in args:
        own = of_value(arg.value) if arg.is_constant and arg.kind is Type.DOUBLE else None
        out.append(arg if own is None else Typed(own, value=units_of(arg.value, own.scale)))
    return out


def _of_decimals(name: str, args: Sequence[Typed]) -> Typed | None:
    """A call that gives a DECIMAL, or compares exactly; None: another one, of doubles or texts."""
    exact = [_exact_type(arg) for arg in args]
    one, other = (exact[0], exact[1]) if len(exact) == 2 else (None, None)
    if one is not None and other is not None and name in decimals.ARITHMETIC:
        run = decimals.arithmetic(name, one, other)
        return Typed(run.gives, run, tuple(args), name=name)
    if one is not None and other is not None and name in COMPARISONS:
        if name == "<=>":
            kind = widest(one, other)
            return Typed(
                Type.BOOLEAN, _same_value, tuple(cast_to(arg, kind) for arg in args), True, name=name
            )
        run = decimals.comparison(name, one, other)
        return Typed(run.gives, run, tuple(args), name=name)
    return _of_one_decimal(name, args)


def _of_one_decimal(name: str, args: Sequence[Typed]) -> Typed | None:
    """A function of one DECIMAL; of `round` and `bround` also with a constant number of digits."""
    own, digits = args[0].kind, 0
    if len(args) == 2 and name in ("round", "bround") and args[1].is_constant:
        digits = args[1].value
    elif len(args) != 1:
        return None
    if not isinstance(own, Type) or not own.is_decimal or type(digits) is not int:
        return None
    run = decimals.of_one(name, own, max(-40, min(digits, 40)))
    return None if run is None else Typed(run.gives, run, (args[0],), name=name)


def _exact_type(arg: Typed) -> Type | None:
    """The type of an argument that is a number with fixed digits; of a constant the narrowest."""
    if not isinstance(arg.kind, Type) or not arg.kind.is_exact:
        return None
    if arg.is_constant and arg.kind is Type.BIGINT and arg.value is not None:
        return of_value(arg.value)
    return arg.kind


def _with_interval(args: Sequence[Typed]) -> Sequence[Typed]:
    """A time and an interval, in this order; a DATE becomes a TIMESTAMP unless whole days are added."""
    if args[0].kind == INTERVAL and args[1].kind != INTERVAL:
        args = args[1], args[0]
    time, span = args
    if span.kind == INTERVAL and time.kind is Type.STRING:
        time = cast_to(time, Type.TIMESTAMP)
    if span.kind == INTERVAL and time.kind is Type.DATE and span.value.microseconds:
        time = cast_to(time, Type.TIMESTAMP)
    return time, span


def _overloaded(name: str, args: Sequence[Typed]) -> Typed:
    if name not in OVERLOADS:
        raise ValueError(f"there is no function {name}")
    known = OVERLOADS[name]
    fitting = []
    for n, overload in enumerate(known):
        takes = _takes(overload, len(args))
        if takes is None:
            continue
        costs = [_cost(arg.kind, kind) for arg, kind in zip(args, takes, strict=True)]
        if None not in costs:
            fitting.append((sum(cost for cost in costs if cost is not None), n))
    if not fitting:
        raise ValueError(_does_not_take(name, args))
    least = min(fitting)[0]
    best = [known[n] for cost, n in fitting if cost == least]
    chosen = best[0]
    takes = _takes(chosen, len(args))
    assert takes is not None
    gives: Kind | None = chosen.gives
    if any(arg.kind == ANY for arg in args) and len({overload.gives for overload in best}) > 1:
        gives = ANY
    converted = tuple(cast_to(arg, kind) for arg, kind in zip(args, takes, strict=True))
    return Typed(gives, chosen.run, converted, name=name)


def _takes(overload: Overload, count: int) -> tuple[Kind, ...] | None:
    if not overload.more:
        return overload.takes if len(overload.takes) == count else None
    fixed = len(overload.takes) - 1
    return None if count <= fixed else (*overload.takes[:-1], *[overload.takes[-1]] * (count - fixed))


def _does_not_take(name: str, args: Sequence[Typed]) -> str:
    counts = sorted({len(overload.takes) for overload in OVERLOADS[name]})
    if not any(_takes(overload, len(args)) for overload in OVERLOADS[name]):
        known = " or ".join(map(str, counts))
        return f"{name} takes {known} argument{'s' * (counts != [1])}, not {len(args)}"
    return f"{name} does not take {kinds_text(args)}"


def kinds_text(args: Iterable[Typed]) -> str:
    """The types of arguments in words."""
    shown = ["NULL" if arg.kind is None else str(arg.kind) for arg in args]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


_COSTS: dict[tuple[Kind, Kind], int] = {
    (Type.BIGINT, Type.DOUBLE): 1,
    (Type.DATE, Type.TIMESTAMP): 1,
    (Type.TIMESTAMP, Type.DATE): 2,
    (Type.STRING, Type.DOUBLE): 3,
    (Type.STRING, Type.DATE): 6,
    (Type.STRING, Type.TIMESTAMP): 6,
    (Type.BIGINT, Type.STRING): 5,
    (Type.DOUBLE, Type.STRING): 5,
    (Type.BOOLEAN, Type.STRING): 5,
    (Type.DATE, Type.STRING): 5,
    (Type.TIMESTAMP, Type.STRING): 5,
}


def _cost(kind: Kind | None, wanted: Kind) -> int | None:
    """What it costs to convert without a CAST; None if that is not done."""
    if kind in (wanted, ANY, None):
        return None if wanted == INTERVAL and kind != INTERVAL else 0
    if isinstance(kind, Type) and kind.is_decimal:
        return 1 if wanted is Type.DOUBLE else 5 if wanted is Type.STRING else None
    return _COSTS.get((kind, wanted))


def cast_to(arg: Typed, kind: Kind | None) -> Typed:
    """The argument as another type."""
    if arg.kind == kind or arg.kind is None or kind is None or ANY in (arg.kind, kind):
        return arg if arg.kind is not None or kind in (None, ANY) else Typed(kind, value=None)
    assert isinstance(arg.kind, Type) and isinstance(kind, Type)
    run = _conversion(arg.kind, kind, exactly=False)
    assert run is not None
    if arg.is_constant:
        return Typed(kind, value=None if arg.value is None else run(arg.value))
    return Typed(kind, run, (arg,), name="cast")


def _conversion(source: Type, target: Type, *, exactly: bool) -> Run | None:
    """What CAST or TRY_CAST computes; None if there is no such conversion."""
    if source.is_decimal or target.is_decimal:
        return decimals.cast_run(source, target)
    return (EXACT_CASTS if exactly else CASTS).get((source, target))


def type_of_into(into: str) -> Type:
    """The type of values that were cast."""
    return Type.BIGINT if into in SIZES else Type(into)


def _cast_call(call: CallNode, arg: Typed) -> Typed:
    kind, exactly = type_of_into(call.into), call.name == "try_cast"
    found = arg
    if arg.kind is None or arg.kind == ANY:
        found = Typed(kind, arg.run, arg.args, arg.lazy, arg.place, arg.value, arg.name)
    elif arg.kind != kind:
        run = _conversion(arg.kind, kind, exactly=exactly) if isinstance(arg.kind, Type) else None
        if run is None:
            raise ValueError(f"a {arg.kind} cannot be cast to {kind}")
        found = Typed(kind, run, (arg,), name="cast")
    if call.into not in SIZES:
        return found
    run = _narrowing(SIZES[call.into], exactly)
    return Typed(kind, run, (found,), name="cast")


@cache
def _narrowing(bits: int, exactly: bool) -> Run:
    function = narrowed_exactly if exactly else narrowed
    return lambda value: function(value, bits)


_LITERAL_KINDS = (None, ANY)


def _comparison(op: str, args: Sequence[Typed]) -> Typed:
    a, b = (arg.kind for arg in args)
    kind = _compared_as(a, b)
    if kind is None and a not in _LITERAL_KINDS and b not in _LITERAL_KINDS:
        raise ValueError(f"a {a} cannot be compared with a {b}")
    both = tuple(cast_to(arg, kind) for arg in args)
    if op == "<=>":
        return Typed(Type.BOOLEAN, _same_value, both, True, name=op)
    return Typed(Type.BOOLEAN, _COMPARED[op], both, name=op)


def _compared_as(a: Kind | None, b: Kind | None) -> Kind | None:
    """The type that two types are compared as; None if they are not, or if one is not known."""
    if a == b and a not in (*_LITERAL_KINDS, INTERVAL):
        return a
    if a in (*_LITERAL_KINDS, INTERVAL) or b in (*_LITERAL_KINDS, INTERVAL):
        known = [kind for kind in (a, b) if kind not in (*_LITERAL_KINDS, INTERVAL)]
        return known[0] if known and None in (a, b) else None
    if {a, b} == {Type.BIGINT, Type.DOUBLE} or _is_decimal(a) or _is_decimal(b):
        other = a if _is_decimal(b) else b
        return Type.DOUBLE if other in (Type.BIGINT, Type.DOUBLE, Type.STRING) else None
    if {a, b} == {Type.DATE, Type.TIMESTAMP}:
        return Type.TIMESTAMP
    if Type.STRING in (a, b):
        return a if b is Type.STRING else b
    return None


def _is_decimal(kind: Kind | None) -> bool:
    return isinstance(kind, Type) and kind.is_decimal


def common(kinds: Iterable[Kind | None], *, texts: bool = True) -> Kind | None:
    """The type that several become in one column; ValueError if there is none. `texts`: a text if one is."""
    found: Kind | None = None
    for kind in kinds:
        if kind is None or found is None:
            found = kind if found is None else found
        elif ANY in (kind, found):
            found = ANY
        elif kind != found:
            pair = {kind, found}
            wide = _wider(found, kind)
            if wide is not None:
                found = wide
            elif pair == {Type.BIGINT, Type.DOUBLE}:
                found = Type.DOUBLE
            elif pair == {Type.DATE, Type.TIMESTAMP}:
                found = Type.TIMESTAMP
            elif texts and Type.STRING in pair and not pair & {Type.BOOLEAN, INTERVAL}:
                found = Type.STRING
            else:
                raise ValueError(f"{found} and {kind} have no common type")
    return found


def _wider(a: Kind, b: Kind) -> Type | None:
    """The type of numbers of which some are DECIMALs; None if these are others."""
    if not (_is_decimal(a) or _is_decimal(b)) or not isinstance(a, Type) or not isinstance(b, Type):
        return None
    if Type.DOUBLE in (a, b):
        return Type.DOUBLE
    return widest(a, b) if a.is_exact and b.is_exact else None


def _own(name: str, args: Sequence[Typed]) -> Typed:
    """Operators and functions that look at NULLs themselves, or take any type."""
    if name in ("and", "or", "not", "istrue", "isfalse"):
        for arg in args:
            if arg.kind not in (Type.BOOLEAN, ANY, None):
                raise ValueError(f"a condition is expected here, not a {arg.kind}")
        if name == "not":
            return Typed(Type.BOOLEAN, _not, tuple(args), name=name)
        return Typed(Type.BOOLEAN, _LAZY[name], tuple(args), True, name=name)
    if name == "isnull":
        return Typed(Type.BOOLEAN, _is_null, tuple(args), True, name=name)
    if name == "isnan":
        if len(args) != 1 or _cost(args[0].kind, Type.DOUBLE) is None:
            raise ValueError(f"isnan does not take {kinds_text(args)}")
        return Typed(Type.BOOLEAN, _is_nan, (cast_to(args[0], Type.DOUBLE),), True, name=name)
    if any(arg.kind == INTERVAL for arg in args):
        raise ValueError(f"{name} does not take an INTERVAL")
    if name == "case":
        return _case_call(args)
    least = 1 if name == "coalesce" else 2
    if len(args) < least:
        raise ValueError(f"{name} takes {least} or more arguments, not {len(args)}")
    kind = common((arg.kind for arg in args), texts=name not in ("greatest", "least"))
    converted = tuple(cast_to(arg, kind) for arg in args)
    return Typed(Type.BOOLEAN if name == "in" else kind, _LAZY[name], converted, True, name=name)


def _case_call(args: Sequence[Typed]) -> Typed:
    for when in args[:-1:2]:
        if when.kind not in (Type.BOOLEAN, ANY, None):
            raise ValueError(f"WHEN takes a condition, not a {when.kind}")
    values = [*args[1:-1:2], args[-1]]
    kind = common(value.kind for value in values)
    converted = iter([cast_to(value, kind) for value in values])
    paired = [arg if n % 2 == 0 else next(converted) for n, arg in enumerate(args[:-1])]
    return Typed(kind, _case, (*paired, next(converted)), True, name="case")
