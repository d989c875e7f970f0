"""The column ``record`` of values in Avro or Protobuf, decoded in Spark's workers for Python, batch by batch.

What a worker needs is in a :class:`Decoding`, which Spark carries there: it asks no registry, and has no secret. A
value whose schema it was not given is returned with that schema's id (``MISSING``); whoever searches asks the registry
for it and looks at the records again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidegate.resources.targets import SchemaFormat
from tidegate.spark.flaws import Flaw
from tidegate.spark.wire_format import HEAD_BYTES, NoHead, message_indexes, message_name, schema_id

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

    from tidegate.spark.columns import Column

RECORD: Final = "record"
"""The column with the value as its schema has it; null where there is no value, or none that can be decoded."""
FLAW: Final = "flaw"
"""The column that says why a value can't be decoded; null for others."""
MISSING: Final = "missing"
"""The column with the id of a schema that the decoding lacks; null for others."""

SETTINGS: Final = {
    # A batch is decoded as a whole, and its values may be a megabyte each.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20),
}
_CHUNK_BYTES: Final = 1 << 20
_MOST_PLACES: Final = 16 << 20
"""Of a column that is built at once, or of a single document's."""
_MOST_NODES: Final = 8 << 20
"""Of documents that are decoded at once, besides those that are told by their bytes: a null field takes none."""
_MOST_MISSING: Final = 32
"""Ids that a task tells of at a time."""

_NOT_DECODED: Final = (EOFError, ValueError, TypeError, IndexError, OverflowError)
"""What decoding raises for bytes that are not as the schema has them (``UnicodeDecodeError`` is a ``ValueError``)."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """By what values are decoded.

    ``schema``: the reader's, for Avro JSON, and for Protobuf the name of the message; ``files``: what it needs: for
    Avro the schemas it refers to, for Protobuf its files in base64, each after those it needs itself. ``framed``:
    values begin with the id of their writer's schema, and ``writers`` has those: the schema and what it refers to, or
    for Protobuf its file in base64; ``None`` where the registry has none. ``wanted``: the fields, in small letters,
    that the column is to have; all of them without it. ``closed``: what ``writers`` lacks is not asked for any more.
    """

    format: SchemaFormat
    schema: str
    files: tuple[str, ...] = ()
    framed: bool = False
    writers: Mapping[int, tuple[str, ...] | None] = field(default_factory=dict)
    wanted: frozenset[str] | None = None
    closed: bool = False

    def record_type(self) -> DataType:
        """The type of the column. Raises ``BadSchema`` where the schema is none, or is not safe to decode by."""
        from pyspark.sql.pandas.types import from_arrow_type

        return from_arrow_type(_codec(self).column.type, prefer_timestamp_ntz=True)

    def narrowed(self, wanted: Collection[str] | None) -> Decoding:
        """With these fields only."""
        return self if wanted is None else replace(self, wanted=frozenset(name.lower() for name in wanted))

    def with_writers(self, writers: Mapping[int, tuple[str, ...] | None]) -> Decoding:
        return replace(self, writers={**self.writers, **writers})

    def decoded(self, records: DataFrame) -> DataFrame:
        """Records that have the column ``value``, with the columns ``RECORD``, ``FLAW`` and ``MISSING``, in any
        order. Raises as ``record_type``."""
        from pyspark.sql.types import IntegerType, StringType, StructType

        schema = StructType(list(records.schema.fields))
        for name, kind in ((RECORD, self.record_type()), (FLAW, StringType()), (MISSING, IntegerType())):
            schema = schema.add(name, kind)
        return records.mapInArrow(_Worker(self), schema)


@dataclass(frozen=True, slots=True)
class _Worker:
    """What Spark calls for each task."""

    decoding: Decoding

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        codec = _codec(self.decoding)
        for batch in batches:
            for chunk in _chunks(batch):
                yield from codec.decoded(chunk)


def _chunks(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Parts of a batch whose values have a megabyte, since decoded ones need many times that."""
    import pyarrow.compute as pc  # type: ignore[import-untyped,unused-ignore]

    start = held = 0
    for n, size in enumerate(pc.binary_length(batch.column("value")).to_pylist()):
        if held and held + (size or 0) > _CHUNK_BYTES:
            yield batch.slice(start, n - start)
            start, held = n, 0
        held += size or 0
    yield batch.slice(start)


Decode = Callable[[bytes, int], Any]


def _codec(decoding: Decoding) -> _Codec:
    """Raises ``BadSchema``."""
    match decoding.format:
        case SchemaFormat.AVRO:
            return _AvroCodec(decoding)
        case SchemaFormat.PROTOBUF:
            return _ProtobufCodec(decoding)
        case SchemaFormat.JSON:
            raise ValueError("Spark itself parses JSON")


class _Codec(ABC):
    """Decodes by one reader's schema. ``column``: of the column ``record``."""

    column: Column

    def __init__(self, decoding: Decoding) -> None:
        self._framed = decoding.framed
        self._writers = decoding.writers
        self._closed = decoding.closed
        self._told: dict[int, None] = {}

    def decoded(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows of a batch with three columns more; a batch for each schema by which some were written, or more
        where one would become too large."""
        values: list[bytes | None] = batch.column("value").to_pylist()
        for number, rows in self._by_writer(values).items():
            lacking = self._framed and number not in self._writers
            missing = self._missing(number) if number is not None and lacking and not self._closed else None
            reading = self._reading(number) if missing is None else _Reading(None, self.column)
            at_once = max(1, _MOST_NODES // reading.nodes)
            for start in range(0, len(rows), at_once):
                part = _Part(rows[start : start + at_once])
                if missing is None:
                    self._fill(part, values, number, reading.decode)
                yield from _batches(batch, part, reading.column, missing)

    def _by_writer(self, values: list[bytes | None]) -> dict[int | None, list[int]]:
        """Rows by their schema's id; by none where there is none."""
        if not self._framed:
            return {None: list(range(len(values)))}
        found: dict[int | None, list[int]] = {}
        for row, value in enumerate(values):
            try:
                number = None if value is None else schema_id(value)
            except NoHead:
                number = None
            found.setdefault(number, []).append(row)
        return found

    def _fill(self, part: _Part, values: list[bytes | None], number: int | None, decode: Decode | None) -> None:
        for n, row in enumerate(part.rows):
            value = values[row]
            if value is None:
                continue
            try:
                part.documents[n] = self._document(decode, value, number)
            except NoHead:
                part.flaws[n] = Flaw.NO_HEAD
            except _Other as other:
                part.flaws[n] = other.flaw
            except _NOT_DECODED:
                part.flaws[n] = Flaw.MALFORMED

    def _missing(self, number: int) -> int:
        """The id to ask for: of a task's first ones each itself, of any others one of those. So whoever makes up ids
        makes no long lists."""
        if len(self._told) < _MOST_MISSING:
            self._told.setdefault(number)
        return number if number in self._told else next(iter(self._told))

    def _unknown(self, number: int) -> Flaw:
        return Flaw.UNKNOWN_SCHEMA if number in self._writers else Flaw.NOT_ASKED

    @abstractmethod
    def _reading(self, number: int | None) -> _Reading: ...

    @abstractmethod
    def _document(self, decode: Decode | None, value: bytes, number: int | None) -> Any: ...


class _Other(Exception):
    """A value that is not to be decoded."""

    def __init__(self, flaw: Flaw) -> None:
        super().__init__(flaw)
        self.flaw: Final = flaw


class _Reading(NamedTuple):
    """How values of a schema are read; without a ``Decode`` they can't be. ``nodes``: the most that a value can have
    besides those that its bytes tell of."""

    decode: Decode | None
    column: Column
    nodes: int = 1


class _Part:
    """Rows of a batch, by one schema: what they hold, and why they can't be decoded."""

    def __init__(self, rows: list[int]) -> None:
        self.rows = rows
        self.documents: list[Any] = [None] * len(rows)
        self.flaws: list[str | None] = [None] * len(rows)

    def halves(self) -> Iterator[_Part]:
        half = len(self.rows) // 2
        for some in (slice(half), slice(half, None)):
            part = _Part(self.rows[some])
            part.documents, part.flaws = self.documents[some], self.flaws[some]
            yield part


def _batches(batch: pa.RecordBatch, part: _Part, column: Column, missing: int | None) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]

    from tidegate.spark.columns import TooLarge

    flaws = list(part.flaws)
    try:
        array = _built(column, part.documents, flaws, 0)
    except TooLarge:
        for half in part.halves():
            yield from _batches(batch, half, column, missing)
        return
    selected = batch if len(part.rows) == batch.num_rows else batch.take(pa.array(part.rows, pa.int64()))
    columns = [
        *selected.columns,
        array,
        pa.array(flaws, pa.string()),
        # As Spark's int, which has a sign; a schema's id has none.
        pa.array([None if missing is None else _signed(missing)] * len(part.rows), pa.int32()),
    ]
    yield pa.RecordBatch.from_arrays(columns, names=[*selected.schema.names, RECORD, FLAW, MISSING])


def _built(column: Column, documents: list[Any], flaws: list[str | None], start: int) -> Any:
    """The column of all of the documents. Those that are not of its types are found by halves, and become null, as does
    one that is too large by itself. Raises ``TooLarge`` where several are."""
    import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]

    from tidegate.spark.columns import PLACE_BYTES, TooLarge, at_most, take_places

    try:
        with at_most(_MOST_PLACES):
            take_places(len(documents), column.type)
            return column.build(documents)
    except _NOT_DECODED as error:
        if len(documents) == 1:
            flaws[start] = Flaw.TOO_LARGE if isinstance(error, TooLarge) else Flaw.MALFORMED
            return column.build([None])
        if isinstance(error, TooLarge):
            raise
    half = len(documents) // 2
    halves = [_built(column, documents[:half], flaws, start), _built(column, documents[half:], flaws, start + half)]
    if sum(each.nbytes for each in halves) > _MOST_PLACES * PLACE_BYTES:
        raise TooLarge("the halves together are")
    return pa.concat_arrays(halves)


def _signed(number: int) -> int:
    return number - (1 << 32) if number >= 1 << 31 else number


def unsigned(number: int) -> int:
    """A schema's id as it is in ``MISSING``."""
    return number + (1 << 32) if number < 0 else number


class _AvroCodec(_Codec):
    def __init__(self, decoding: Decoding) -> None:
        from tidegate.spark.avro_columns import columns
        from tidegate.spark.avro_documents import decoder
        from tidegate.spark.avro_schema import parse, size

        super().__init__(decoding)
        self._reader = parse(decoding.schema, decoding.files)
        self._wanted = decoding.wanted
        self.column = columns(self._reader, self._reader, self._wanted)
        self._own = _Reading(None if decoding.framed else decoder(self._reader), self.column, size(self._reader))
        self._read: dict[int, _Reading] = {}

    def _reading(self, number: int | None) -> _Reading:
        if number is None:
            return self._own
        if number not in self._read:
            self._read[number] = self._writer(number)
        return self._read[number]

    def _writer(self, number: int) -> _Reading:
        from tidegate.spark.avro_columns import columns
        from tidegate.spark.avro_documents import decoder
        from tidegate.spark.avro_schema import BadSchema, parse, size

        texts = self._writers.get(number)
        if texts is None:
            return _Reading(None, self.column)
        try:
            writer = parse(texts[0], texts[1:])
            return _Reading(decoder(writer), columns(writer, self._reader, self._wanted), size(writer))
        except BadSchema:
            return _Reading(None, self.column)

    def _document(self, decode: Decode | None, value: bytes, number: int | None) -> Any:
        if not self._framed and decode is not None:
            return decode(value, 0)
        if number is None:
            raise NoHead
        if decode is None:
            raise _Other(self._unknown(number) if self._writers.get(number) is None else Flaw.OTHER_SCHEMA)
        return decode(value, HEAD_BYTES)


class _ProtobufCodec(_Codec):
    def __init__(self, decoding: Decoding) -> None:
        from tidegate.spark.protobuf_columns import columns, decoder, from_base64, message_type

        super().__init__(decoding)
        message = message_type([from_base64(file) for file in decoding.files], decoding.schema)
        self._name = message.DESCRIPTOR.full_name
        self.column = columns(message, decoding.wanted)
        self._message = decoder(message)
        self._names: dict[tuple[int, tuple[int, ...]], str | None] = {}

    def _reading(self, number: int | None) -> _Reading:  # noqa: ARG002 - one for all
        return _Reading(self._message, self.column)

    def _document(self, decode: Decode | None, value: bytes, number: int | None) -> Any:  # noqa: ARG002 - its own
        if not self._framed:
            return self._message(value, 0)
        if number is None:
            raise NoHead
        texts = self._writers.get(number)
        if texts is None:
            raise _Other(self._unknown(number))
        indexes, start = message_indexes(value)
        if self._name_of(number, texts[0], indexes) != self._name:
            raise _Other(Flaw.OTHER_SCHEMA)
        return self._message(value, start)

    def _name_of(self, number: int, file: str, indexes: tuple[int, ...]) -> str | None:
        key = (number, indexes)
        if key not in self._names:
            if len(self._names) >= _MOST_NAMES:
                self._names.clear()
            self._names[key] = _named(file, indexes)
        return self._names[key]


_MOST_NAMES: Final = 10_000
"""Any value can claim other indexes: so many are remembered."""


def _named(file: str, indexes: tuple[int, ...]) -> str | None:
    found = _file(file)
    return None if found is None else message_name(found, indexes)


@lru_cache(maxsize=8)
def _file(text: str) -> Any:
    """Once for many values: each may claim indexes that no other has."""
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    from tidegate.spark.avro_schema import BadSchema
    from tidegate.spark.protobuf_columns import from_base64

    try:
        return descriptor_pb2.FileDescriptorProto.FromString(from_base64(text))
    except (BadSchema, DecodeError):
        return None
