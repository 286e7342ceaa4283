"""Arguments of compiled functions: tuples with names are passed by address, arrays unpacked by one function.

    tuples with names     Numba passes each of seven fields of each array of a tuple, at every call: here, the
                          address of the tuple. Whoever is called only reads it, so an argument that is
                          handed on, or a tuple inside of it, needs no copy
    arrays from Python    Numba writes the code that unpacks an array, and that raises if it is none, once per
                          array: here, once per kernel

Arguments took a third of the code of all kernels. `shortcuts.py` puts these functions in the place of
Numba's while a kernel is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from llvmlite import ir
from numba.core import cgutils, pythonapi, types
from numba.core.callconv import CPUCallConv
from numba.core.datamodel import models
from numba.core.errors import NumbaNotImplementedError
from numba.np import numpy_support

__all__ = ["field_of", "replacements"]

_ITEM_SIZE = 3  # the place of `itemsize` among the fields of an array, all of them 64 bits before it
_UNPACKED = "can't unbox array from PyObject into native value.  The object maybe of a different type"


def replacements() -> Iterator[tuple[Any, str, Any]]:
    """What to replace: object, name and value."""
    for model in (models.TupleModel, models.UniTupleModel):
        yield model, "get_argument_type", _argument_type(model.get_argument_type)
        yield model, "as_argument", _as_argument(model.as_argument)
        yield model, "from_argument", _from_argument(model.from_argument)
    convention: Any = CPUCallConv
    yield convention, "decorate_function", _decorate(convention.decorate_function)
    registry: Any = vars(pythonapi)["_unboxers"]
    yield registry, "lookup", _look_up(registry.lookup)


# -- tuples with names -----------------------------------------------------------------------------------


def _is_named(model: Any) -> bool:
    return isinstance(model.fe_type, types.BaseNamedTuple)


def _argument_type(original: Callable[..., Any]) -> Callable[..., Any]:
    def get_argument_type(self: Any) -> Any:
        return self.get_value_type().as_pointer() if _is_named(self) else original(self)

    return get_argument_type


def _as_argument(original: Callable[..., Any]) -> Callable[..., Any]:
    def as_argument(self: Any, builder: Any, value: Any) -> Any:
        if not _is_named(self):
            return original(self, builder, value)
        place = getattr(value, "_place", None)
        if place is None:
            place = cgutils.alloca_once(builder, value.type)
            builder.store(value, place)
        return place

    return as_argument


def _from_argument(original: Callable[..., Any]) -> Callable[..., Any]:
    def from_argument(self: Any, builder: Any, value: Any) -> Any:
        return _placed(builder, value) if _is_named(self) else original(self, builder, value)

    return from_argument


def _placed(builder: Any, place: Any) -> Any:
    """The value at an address that stays as it is; the value knows its address."""
    value = builder.load(place)
    value._place = place
    return value


def field_of(builder: Any, whole: Any, at: int) -> Any:
    """A field of a tuple; one of an argument knows its address too."""
    field = builder.extract_value(whole, at)
    place = getattr(whole, "_place", None)
    if place is not None and isinstance(field.type, ir.LiteralStructType | ir.ArrayType):
        field._place = cgutils.gep_inbounds(builder, place, 0, at)
    return field


def _decorate(decorate: Callable[..., None]) -> Callable[..., None]:
    def decorate_function(self: Any, function: Any, names: Any, kinds: Any, noalias: bool = False) -> None:
        """Tuples behind addresses are only read, and nothing else points to them."""
        decorate(self, function, names, kinds, noalias)
        named = [kind for kind in kinds if isinstance(kind, types.BaseNamedTuple)]
        if not named:
            return
        addresses = {self.context.get_value_type(kind).as_pointer() for kind in named}
        for argument in self.get_arguments(function):
            if argument.type in addresses:
                for attribute in ("noalias", "captures(none)", "nonnull"):
                    argument.add_attribute(attribute)

    return decorate_function


# -- arrays from Python ----------------------------------------------------------------------------------


def _look_up(original: Callable[..., Any]) -> Callable[..., Any]:
    def lookup(kind: Any, default: Any = None) -> Any:
        if kind is types.Array:
            return _unbox_array
        if issubclass(kind, types.BaseNamedTuple):
            return _unbox_named
        return original(kind, default)

    return lookup


def _unbox_array(kind: Any, item: Any, context: Any) -> Any:
    place = cgutils.alloca_once(context.builder, context.context.get_value_type(kind))
    failed = _unpack(kind, item, context, place)
    return pythonapi.NativeValue(context.builder.load(place), is_error=failed)


def _unbox_named(kind: Any, item: Any, context: Any) -> Any:
    place = cgutils.alloca_once(context.builder, context.context.get_value_type(kind))
    cleanups: list[Callable[[], None]] = []
    failed = _unpack_named(kind, item, context, place, cleanups)

    def cleanup() -> None:
        for one in reversed(cleanups):
            one()

    value = _placed(context.builder, place)
    return pythonapi.NativeValue(value, cleanup=cleanup if cleanups else None, is_error=failed)


def _unpack_named(kind: Any, item: Any, context: Any, place: Any, cleanups: list[Callable[[], None]]) -> Any:
    """Write the fields of a tuple, and of tuples in it, to `place`; whether that failed."""
    builder, api, count = context.builder, context.pyapi, len(kind)
    size = api.tuple_size(item)
    failed = builder.icmp_unsigned("!=", size, size.type(count))
    with builder.if_then(failed, likely=False):
        text = f"size mismatch for tuple, expected {count} element(s) but got %zd"
        api.err_format("PyExc_ValueError", text, size)
    for at, own in enumerate(kind):
        part, field = api.tuple_getitem(item, at), cgutils.gep_inbounds(builder, place, 0, at)
        if type(own) is types.Array:
            one = _unpack(own, part, context, field)
        elif isinstance(own, types.BaseNamedTuple):
            one = _unpack_named(own, part, context, field, cleanups)
        else:
            native = context.unbox(own, part)
            builder.store(native.value, field)
            one = native.is_error
            if native.cleanup is not None:
                cleanups.append(native.cleanup)
        failed = builder.or_(failed, one)
    return failed


def _unpack(kind: Any, item: Any, context: Any, place: Any) -> Any:
    """Write the fields of an array to `place`; whether that failed."""
    builder, api = context.builder, context.pyapi
    try:
        size = numpy_support.as_dtype(kind.dtype).itemsize
    except NumbaNotImplementedError:
        size = 0  # not checked
    function = _unpacker(context)
    return builder.call(function, [item, builder.bitcast(place, api.voidptr), ir.IntType(64)(size)])


def _unpacker(context: Any) -> Any:
    """The function of this module that unpacks any array."""
    counts = context.context.enable_nrt
    module, name = context.builder.module, "tocsin.unpack.counted" if counts else "tocsin.unpack"
    found = module.globals.get(name)
    if found is not None:
        return found
    api, long = context.pyapi, ir.IntType(64)
    function = ir.Function(module, ir.FunctionType(ir.IntType(1), [api.pyobj, api.voidptr, long]), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    item, place, expected = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    api = context.context.get_python_api(builder)
    adapt = api.nrt_adapt_ndarray_from_python if counts else api.numba_array_adaptor
    code = adapt(item, place)
    size = builder.load(builder.gep(builder.bitcast(place, long.as_pointer()), [long(_ITEM_SIZE)]))
    other = builder.and_(
        builder.icmp_signed("!=", expected, long(0)), builder.icmp_signed("!=", size, expected)
    )
    failed = builder.or_(cgutils.is_not_null(builder, code), other)
    with builder.if_then(failed, likely=False):
        api.err_set_string("PyExc_TypeError", _UNPACKED)
    builder.ret(failed)
    return function
