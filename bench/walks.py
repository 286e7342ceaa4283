"""Counts the three walks of docs/tour.md: functions and files that a change passes on its way.

    python bench/walks.py event    one event of a stream, from Engine.publish to subscription ids
    python bench/walks.py join     one row change, from Engine.insert through a join to deltas
    python bench/walks.py batch    one micro-batch, from routing through both shard stages to rows for sinks
    python bench/walks.py event --list    the same, with every function in the order of its first call

The walk is traced, not estimated. A function counts once, however often it is called, if it hands the change
on: if it calls another function or a kernel of the package. Helpers that call nothing are counted apart, and
marked with a dot in the list. Properties, lambdas, comprehensions and special methods do not count, nor do
kernels inside kernels. Upkeep counts as one function (`ONE`): validity by the clock, maintenance of an index,
rooms that hold nothing for the change, and in a micro-batch the engine inside a shard. A return is a step
back into a file that the walk had already left for another one.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any

import tocsin
from tocsin.compiled import Kernel

os.environ["TOCSIN_JIT"] = "always"  # an interpreted kernel would show the kernels inside of it

ONE = ("Roster.start_and_end", "Auto.maintain", "RecentEvents.add")
PACKAGE = str(Path(tocsin.__file__).parent)

Function = tuple[str, str]  # file, qualified name


class Walk:
    """The functions of the package in the order of their first call."""

    def __init__(self, one: tuple[str, ...]) -> None:
        self.functions: dict[Function, bool] = {}  # whether it hands the change on
        self._one = one  # qualified names of functions that count as one with all they call
        self._inside: FrameType | None = None

    def trace(self, frame: FrameType, event: str, _: Any) -> None:
        """A profile function for `sys.setprofile`."""
        if event == "return" and frame is self._inside:
            self._inside = None
        if event != "call" or self._inside or not _is_counted(frame.f_code):
            return
        self.functions.setdefault(_named(frame.f_code), False)
        self._hand_on(frame.f_back)
        if frame.f_code.co_qualname in self._one:
            self._inside = frame

    def kernel(self, kernel: Kernel, caller: FrameType) -> None:
        """Record a call of a compiled function."""
        if not self._inside:
            self.functions[_named(kernel.py_func.__code__)] = True
            self._hand_on(caller)

    def _hand_on(self, caller: FrameType | None) -> None:
        """Mark the nearest function of the package that called."""
        while caller is not None and not _is_counted(caller.f_code):
            caller = caller.f_back
        if caller is not None:
            self.functions[_named(caller.f_code)] = True

    @property
    def path(self) -> list[Function]:
        """The functions that hand the change on."""
        return [function for function, hands_on in self.functions.items() if hands_on]

    @property
    def returns(self) -> int:
        """How often the path comes back to a file that it had left."""
        seen: list[str] = []
        for file, _ in self.path:
            if not seen or seen[-1] != file:
                seen.append(file)
        return len(seen) - len(set(seen))


def _named(code: CodeType) -> Function:
    return code.co_filename.removeprefix(PACKAGE + "/"), code.co_qualname


def _is_counted(code: CodeType) -> bool:
    name = code.co_name
    if not code.co_filename.startswith(PACKAGE) or name.startswith("<"):
        return False
    return not (name.startswith("__") and name.endswith("__")) and code.co_qualname not in _properties()


_PROPERTIES: set[str] = set()


def _properties() -> set[str]:
    """The qualified names of all properties of the package."""
    if not _PROPERTIES:
        modules = [module for name, module in list(sys.modules.items()) if name.startswith("tocsin")]
        classes = [c for module in modules for c in list(vars(module).values()) if isinstance(c, type)]
        for value in (value for c in classes for value in vars(c).values()):
            if isinstance(value, property) and value.fget is not None:
                _PROPERTIES.add(value.fget.__qualname__)
            elif isinstance(value, cached_property):
                _PROPERTIES.add(value.func.__qualname__)
    return _PROPERTIES


@contextmanager
def _kernels_noted(walk: Walk) -> Iterator[None]:
    """Record the kernels that Python calls."""
    changed: list[tuple[Any, str, Kernel]] = []

    def noted(kernel: Kernel) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            walk.kernel(kernel, sys._getframe(1))
            return kernel(*args, **named)

        return call

    for name, module in list(sys.modules.items()):
        if name.startswith("tocsin"):
            # A module of kernels that Python imports whole is called by attribute: `kernels.stab(...)`.
            changed += [(module, key, v) for key, v in vars(module).items() if isinstance(v, Kernel)]
    for module, key, kernel in changed:
        setattr(module, key, noted(kernel))
    try:
        yield
    finally:
        for module, key, kernel in changed:
            setattr(module, key, kernel)


def recorded(call: Callable[[], Any], *one: str) -> Walk:
    """Run a call and record its walk."""
    walk = Walk((*ONE, *one))
    with _kernels_noted(walk):
        sys.setprofile(walk.trace)
        try:
            call()
        finally:
            sys.setprofile(None)
    return walk


def event() -> Walk:
    """One event of a stream among a thousand filters."""
    engine = tocsin.Engine()
    engine.execute("CREATE STREAM listings")
    engine.subscribe_texts(
        [f"SELECT * FROM listings WHERE model = 'x{n}' AND price < {n}" for n in range(1000)]
    )
    for n in range(20):
        engine.publish("listings", {"model": f"x{n}", "price": 3})
    one = {"model": "x900", "price": 3}
    others = "JoinRoom.deltas", "RankRoom.deltas"
    return recorded(lambda: engine.publish("listings", one).subscription, *others)


def join() -> Walk:
    """One row inserted into a table that two hundred subscriptions join."""
    engine = tocsin.Engine()
    engine.execute("CREATE TABLE stocks (symbol STRING, per DOUBLE, PRIMARY KEY (symbol))")
    engine.execute("CREATE TABLE reviews (id BIGINT, symbol STRING, rating DOUBLE, PRIMARY KEY (id))")
    text = "SELECT * FROM stocks JOIN reviews USING (symbol) WHERE per BETWEEN {} AND {} AND rating >= {}"
    engine.subscribe_texts([text.format(n, n + 40, n % 9) for n in range(200)])
    for n in range(20):
        engine.insert("stocks", {"symbol": f"S{n}", "per": 50.0 + n})
        engine.insert("reviews", {"id": n, "symbol": f"S{n}", "rating": 5.0})
    row = {"id": 99, "symbol": "S3", "rating": 8.0}
    return recorded(lambda: engine.insert("reviews", row), "MatchRoom.deltas", "RankRoom.deltas")


def batch() -> Walk:
    """The third micro-batch of a pipeline with a filter and a join, in this process."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.spark.simulated import Simulated  # the stages of the pipeline without Spark
    from tocsin.spark import Layout

    ddl = """CREATE TABLE stocks (symbol STRING, per DOUBLE, PRIMARY KEY (symbol));
        CREATE TABLE reviews (id BIGINT, symbol STRING, rating DOUBLE, PRIMARY KEY (id));"""
    subscriptions = [
        (1, "SELECT symbol FROM stocks WHERE per < 50"),
        (2, "SELECT * FROM stocks JOIN reviews USING (symbol) WHERE per < 90 AND rating >= 2"),
    ]

    def changes(seq: int) -> list[dict[str, Any]]:
        stock = f'{{"symbol": "S{seq}", "per": 40}}'
        review = f'{{"id": {seq}, "symbol": "S{seq}", "rating": 5}}'
        rows = (("stocks", stock), ("reviews", review))
        return [{"table": t, "op": "insert", "seq": seq + n, "row": row} for n, (t, row) in enumerate(rows)]

    with TemporaryDirectory() as folder:
        pipeline = Simulated(Path(folder), ddl, subscriptions, Layout(1, 1))
        for n in (1, 3):
            pipeline.batch(changes(n), partitions=1)
        inside = "_locked.<locals>.call", "Engine.schema"  # a shard's engine
        return recorded(lambda: pipeline.batch(changes(5), partitions=1), *inside)


def main() -> None:
    """Read arguments, count, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("walk", choices=["event", "join", "batch"])
    parser.add_argument("--list", action="store_true", help="print every function")
    given = parser.parse_args()
    walk = {"event": event, "join": join, "batch": batch}[given.walk]()
    last = ""
    for (file, function), hands_on in walk.functions.items() if given.list else ():
        print(f"{'' if file == last else file:40} {' ' if hands_on else '.'} {function}")
        last = file
    files = {file for file, _ in walk.path}
    print(
        f"{given.walk}: {len(walk.path)} functions in {len(files)} files, {walk.returns} returns; "
        f"{len(walk.functions) - len(walk.path)} helpers"
    )


if __name__ == "__main__":
    main()
