"""Rows as Arrow batches, which Spark hands to Python and takes back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]

_BATCH_ROWS: Final = 20_000


def rows_of(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Each row by column name, as Python values."""
    names = batch.schema.names
    for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        yield dict(zip(names, values, strict=True))


def as_batches(columns: str, rows: Iterable[tuple[object, ...]]) -> Iterator[pa.RecordBatch]:
    """Rows as Arrow batches with the given columns (Spark's DDL, of the few types used here)."""
    import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]

    types = {
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "array<string>": pa.list_(pa.string()),
    }
    schema = pa.schema([(name, types[kind]) for name, kind in (c.split() for c in columns.split(", "))])
    rows = iter(rows)
    while chunk := list(islice(rows, _BATCH_ROWS)):
        arrays = [pa.array(values, field.type) for values, field in zip(zip(*chunk, strict=True), schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
