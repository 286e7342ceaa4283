"""Changes as a source gives them, normalised for the pipeline: five columns, one of them for faults.

A change has `table`, `op`, `row` and `seq`. A row is JSON text or a struct; seq is an integer or its text. A
change that cannot be read is not dropped: it keeps its text, gets a *fault* (the reason to reject it), and
becomes a dead letter:

    a line that is not JSON      in the column `_corrupt_record`, as Spark's readers keep it
    a seq that is no BIGINT      'x', 12.5, a number too large
    text that is not UTF-8       Arrow cannot carry it: it is repaired and marked, and so is no longer JSON
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from tocsin.errors import TocsinError

__all__ = ["CORRUPT", "TEXTS", "empty_changes", "normalised", "require_stream"]

CORRUPT = "_corrupt_record"
TEXTS = "table string, op string, row string, seq string"
"""The schema to read JSON with: seq is text, so that a bad one is kept and reported."""

COLUMNS = {"table": "string", "op": "string", "row": "string", "seq": "bigint", "fault": "string"}
TIMES = {  # to the microsecond
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
NOT_TEXT = "not UTF-8: "
NOT_JSON = "malformed line: it is no JSON object"


def normalised(source: DataFrame) -> DataFrame:
    """The changes of a source, with the columns of `COLUMNS`; raises if the source lacks one."""
    require_stream(source)
    fields = {field.name: field.dataType for field in source.schema.fields}
    missing = [name for name in ("table", "op", "seq", "row") if name not in fields]
    if missing:
        raise TocsinError(
            f"the changes have no column {', '.join(missing)}", hint="needed are table, op, row and seq"
        )
    corrupt = F.col(CORRUPT) if CORRUPT in fields else F.lit(None).cast("string")
    seq, wrong = _seq(fields["seq"])
    fault = F.when(corrupt.isNotNull(), NOT_JSON)
    fault = fault.when(wrong, F.concat(F.lit("seq "), F.col("seq").cast("string"), F.lit(" is not a BIGINT")))
    return source.select(
        F.make_valid_utf8(F.col("table").cast("string")).alias("table"),
        F.make_valid_utf8(F.col("op").cast("string")).alias("op"),
        _as_text(F.coalesce(_row(fields["row"]), corrupt)).alias("row"),
        F.when(~wrong, seq).alias("seq"),
        F.make_valid_utf8(fault).alias("fault"),
    )


def empty_changes(source: DataFrame) -> DataFrame:
    """For each row of any source, a row of NULLs in the columns of `COLUMNS`."""
    return source.select(*(F.lit(None).cast(kind).alias(name) for name, kind in COLUMNS.items()))


def require_stream(source: DataFrame) -> None:
    if not source.isStreaming:
        raise TocsinError(
            "the changes are a batch, not a stream", hint="read them by spark.readStream, not spark.read"
        )


def _row(kind: T.DataType) -> Column:
    if isinstance(kind, T.StructType):
        # a struct has all its fields in every row: NULL must mean "not given"
        return F.to_json("row", TIMES)
    if isinstance(kind, T.StringType):
        return F.col("row")
    raise TocsinError(f"column row is {kind.simpleString()}", hint="make it JSON text or a struct")


def _seq(kind: T.DataType) -> tuple[Column, Column]:
    """The seq as a BIGINT, and whether it is not one."""
    given, number = F.col("seq"), F.col("seq").try_cast("bigint")
    if isinstance(kind, T.NumericType) and not isinstance(kind, T.IntegralType):
        return number, given.isNotNull() & ~F.coalesce(number == given, F.lit(False))
    return number, given.isNotNull() & number.isNull()


def _as_text(text: Column) -> Column:
    marked = F.concat(F.lit(NOT_TEXT), F.make_valid_utf8(text))
    return F.when(F.is_valid_utf8(text), text).when(text.isNotNull(), marked)
