"""Shorter code for LLVM: the same meaning in fewer instructions, faster to write and to optimise.

    variables assigned once    before all their uses are values; Numba gives each a place in memory, zeroes
                               it, reads it before each write and zeroes it again at the end
    arrays that are read       are values too: an element takes a few instructions; Numba copies the seven
                               fields of the array to memory first
    arguments, their fields    live as long as the call, since the caller keeps them: Numba counts references
                               to each array of each

`shortcuts.py` puts these functions in the place of Numba's while a kernel is compiled. Variables that count
references to memory, because the function may be their only owner, are left to Numba.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from numba.core import cgutils, ir, lowering, types
from numba.core.analysis import compute_cfg_from_blocks, compute_use_defs, must_use_alloca
from numba.np import arrayobj

from tocsin.compiled.arguments import field_of

__all__ = ["replacements"]

_ARRAY_FIELDS = ("meminfo", "parent", "nitems", "itemsize", "data", "shape", "strides")
_SHAPE = _ARRAY_FIELDS.index("shape")


def replacements() -> Iterator[tuple[Any, str, Any]]:
    """What to replace: object, name and value."""
    lower: Any = lowering.Lower
    yield lower, "_find_singly_assigned_variable", _values(lower._find_singly_assigned_variable)
    yield lower, "alloca_lltype", _place(lower.alloca_lltype)
    yield lower, "storevar", _store(lower.storevar)
    yield lower, "delvar", _delete(lower.delvar)
    yield lower, "lower_assign", _assign(lower.lower_assign)
    yield arrayobj, "make_array", _make_array(arrayobj.make_array)
    yield arrayobj, "basic_indexing", _indexing(arrayobj.basic_indexing)


# -- variables -----------------------------------------------------------------------------------------


def _counts(lower: Any, name: str) -> bool:
    """Whether a variable counts references."""
    if not lower.context.enable_nrt or name in lower._borrowed:
        return False
    return lower.context.data_model_manager[lower.typeof(name)].contains_nrt_meminfo()


def _values(find: Callable[..., None]) -> Callable[..., None]:
    def find_singly_assigned_variable(self: Any) -> None:
        find(self)
        self._borrowed = frozenset()
        blocks = self.func_ir.blocks
        if self.func_ir.func_id.is_generator or self._disable_sroa_like_opt:
            return
        assigned = [one for _, block in sorted(blocks.items()) for one in block.find_insts(ir.Assign)]
        times = Counter(one.target.name for one in assigned)
        self._borrowed = _borrowed(self, [one for one in assigned if times[one.target.name] == 1])
        use_defs, in_memory = compute_use_defs(blocks), must_use_alloca(blocks)
        used = defaultdict(set)
        for label, names in use_defs.usemap.items():
            for name in names:
                used[name].add(label)
        dominators = compute_cfg_from_blocks(blocks).dominators()
        for label, names in use_defs.defmap.items():
            for name in names:
                # blocks are lowered in the order of their labels
                before = all(label < at and label in dominators[at] for at in used[name])
                if before and times[name] == 1 and name not in in_memory and not _counts(self, name):
                    self._singly_assigned_vars.add(name)

    return find_singly_assigned_variable


def _borrowed(lower: Any, assigned: list[Any]) -> frozenset[str]:
    """Variables that are arguments, fields of arguments, or other names for these."""
    found: set[str] = set()
    for one in assigned:
        value, kind = one.value, lower.typeof(one.target.name)
        if isinstance(value, ir.Arg):
            same = lower.typeof(f"arg.{value.name}") == kind
        elif isinstance(value, ir.Var):
            same = value.name in found and lower.typeof(value.name) == kind
        else:
            at = _field(lower, value)
            same = at is not None and value.value.name in found and _part(lower, value, at) == kind
        if same:
            found.add(one.target.name)
    return frozenset(found)


def _field(lower: Any, value: Any) -> int | None:
    """Which field of a tuple a value is; -1 for the whole."""
    if not (isinstance(value, ir.Expr) and value.op in ("getattr", "static_getitem", "exhaust_iter")):
        return None
    whole: Any = lower.typeof(value.value.name)
    kinds: Any = types
    if not isinstance(whole, kinds.BaseTuple):
        return None
    if value.op == "exhaust_iter":
        return -1
    if value.op == "static_getitem":
        return value.index if type(value.index) is int and 0 <= value.index < len(whole) else None
    is_named = isinstance(whole, kinds.BaseNamedTuple) and value.attr in whole.fields
    return whole.fields.index(value.attr) if is_named else None


def _part(lower: Any, value: Any, at: int) -> Any:
    """The type of a field."""
    whole = lower.typeof(value.value.name)
    return whole if at < 0 else whole[at]


def _assign(assign: Callable[..., Any]) -> Callable[..., Any]:
    def lower_assign(self: Any, kind: Any, one: Any) -> Any:
        if one.target.name not in self._borrowed:
            return assign(self, kind, one)
        value = one.value
        if isinstance(value, ir.Arg):
            return self.fnargs[value.index]
        if isinstance(value, ir.Var):
            return self.loadvar(value.name)
        at, whole = _field(self, value), self.loadvar(value.value.name)
        return whole if at is None or at < 0 else field_of(self.builder, whole, at)

    return lower_assign


def _place(allocate: Callable[..., Any]) -> Callable[..., Any]:
    def alloca_lltype(self: Any, name: str, kind: Any, datamodel: Any = None) -> Any:
        if self._disable_sroa_like_opt:
            return allocate(self, name, kind, datamodel)
        return cgutils.alloca_once(self.builder, kind, name=name, zfill=False)

    return alloca_lltype


def _store(store: Callable[..., None]) -> Callable[..., None]:
    def storevar(self: Any, value: Any, name: str, argidx: int | None = None) -> None:
        is_value = name in self._singly_assigned_vars or self._disable_sroa_like_opt
        if is_value or (argidx is None and _counts(self, name)):
            store(self, value, name, argidx)
            return
        place = self.getvar(name)
        assert value.type == place.type.pointee
        self.builder.store(value, place)

    return storevar


def _delete(delete: Callable[..., None]) -> Callable[..., None]:
    def delvar(self: Any, name: str) -> None:
        if self._disable_sroa_like_opt or _counts(self, name):
            delete(self, name)

    return delvar


# -- arrays --------------------------------------------------------------------------------------------


class ArrayValue:
    """An array that is only read; if its fields are written, or have addresses, `_in_memory`."""

    def __init__(self, real: Any, context: Any, builder: Any, value: Any) -> None:
        self.__dict__.update(_real=real, _context=context, _builder=builder, _value=value)
        self.__dict__.update(_block=builder.block, _last=builder.block.instructions[-1:], _placed=None)

    def __getattr__(self, name: str) -> Any:
        if name in _ARRAY_FIELDS and self._placed is None:
            return self._builder.extract_value(self._value, _ARRAY_FIELDS.index(name))
        return getattr(self._in_memory(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._in_memory(), name, value)

    def _in_memory(self) -> Any:
        """Numba's form of it, as if made in the first place."""
        if self._placed is None:
            builder, now, made = self._builder, self._builder.block, self._block.instructions
            place = cgutils.alloca_once(builder, self._value.type)
            first = made.index(self._last[0]) + 1 if self._last else 0
            if place.parent is self._block:
                first = max(first, made.index(place) + 2)  # after it is zeroed
            following = [one for one in made[first:] if one.opname != "phi"]
            if following:
                builder.position_before(following[0])
            else:
                builder.position_at_end(self._block)
            builder.store(self._value, place)
            builder.position_at_end(now)
            self.__dict__["_placed"] = self._real(self._context, builder, ref=place)
        return self._placed

    def _getvalue(self) -> Any:
        return self._value if self._placed is None else self._placed._getvalue()

    def size(self, axis: int) -> Any:
        """The number of elements along an axis."""
        return self._builder.extract_value(self._value, [_SHAPE, axis])


def _make_array(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    made: dict[Any, Any] = {}

    def make_array(kind: Any) -> Any:
        found = made.get(kind)
        if found is None:
            real = make(kind)
            found = made[kind] = _reader(real) if type(kind) is types.Array and kind.ndim else real
        return found

    return make_array


def _reader(real: Any) -> Callable[..., Any]:
    def read(context: Any, builder: Any, value: Any = None, ref: Any = None) -> Any:
        if value is None or ref is not None:
            return real(context, builder, value=value, ref=ref)
        return ArrayValue(real, context, builder, value)

    return read


def _indexing(index: Callable[..., Any]) -> Callable[..., Any]:
    def basic_indexing(
        context: Any, builder: Any, kind: Any, array: Any, kinds: Any, indices: Any, boundscheck: Any = None
    ) -> Any:
        """The address of one element; anything else is left to Numba."""
        plain = type(array) is ArrayValue and array._placed is None and kind.layout == "C" and not boundscheck
        if not (plain and len(kinds) == kind.ndim and all(isinstance(one, types.Integer) for one in kinds)):
            return index(context, builder, kind, array, kinds, indices, boundscheck=boundscheck)
        place = None
        for axis, (own, at) in enumerate(zip(kinds, indices, strict=True)):
            size = array.size(axis) if own.signed or axis else None
            at = arrayobj.fix_integer_index(context, builder, own, at, size)
            place = at if place is None else builder.add(builder.mul(place, size), at)
        return builder.gep(array.data, [place]), [], []

    return basic_indexing
