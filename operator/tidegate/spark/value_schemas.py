"""From the schema that a target names to what values are decoded by: in Spark's driver, which alone asks a registry."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from tidegate.kafka.connection import Registry
from tidegate.reset.model.targets import RecordSchema
from tidegate.reset.planning.refusals import BAD_SCHEMA, PlanRefused
from tidegate.resources.targets import SchemaFormat
from tidegate.spark.decoding import Decoding
from tidegate.spark.registry import Found, RegistryClient

_NO_DECODER: Final = (
    "Spark's Python lacks fastavro, protobuf or pyarrow: install Tidegate's extra spark where jobs run on this machine"
)


@dataclass(slots=True)
class ValueSchemas:
    """The schemas of a search's values. ``decoding``: by those that are known by now; ``note``: for the plan, which
    schema conditions were understood by, or empty."""

    decoding: Decoding
    note: str = ""
    _client: RegistryClient | None = None

    def learn(self, ids: Collection[int]) -> None:
        """Ask for the schemas of these ids; from ``MOST_SCHEMAS`` on, for none any more. Raises as
        ``RegistryClient``."""
        if self._client is None:
            raise ValueError("values without a registry have no ids")
        for number in sorted(ids):
            if self._client.exhausted:
                self.decoding = replace(self.decoding, closed=True)
                return
            found = self._client.by_id(number)
            self.decoding = self.decoding.with_writers({number: None if found is None else _texts(found)})


def _texts(found: Found) -> tuple[str, ...]:
    return (found.text, *found.references)


def value_schemas(schema: RecordSchema | None) -> ValueSchemas | None:
    """``None`` where Spark itself parses values, or nobody does.

    Raises ``PlanRefused`` where a schema is none that values may be decoded by, and as ``RegistryClient``.
    """
    if schema is None or schema.format is SchemaFormat.JSON:
        return None
    try:
        found = _by_registry(schema, schema.registry) if schema.registry is not None else _by_text(schema)
        # What can't be decoded by is refused before anything is read.
        found.decoding.record_type()
    except ImportError as error:
        raise PlanRefused(BAD_SCHEMA, f"{schema.source}: {_NO_DECODER} ({error.name})") from error
    except ValueError as error:  # BadSchema, whose module needs what may be lacking
        raise PlanRefused(BAD_SCHEMA, f"{schema.source}: {error}") from None
    return found


def _by_text(schema: RecordSchema) -> ValueSchemas:
    if schema.format is SchemaFormat.AVRO:
        return ValueSchemas(Decoding(schema.format, schema.text))
    from tidegate.spark.protobuf_columns import files_of_set

    return ValueSchemas(Decoding(schema.format, schema.message, files_of_set(schema.text)))


def _by_registry(schema: RecordSchema, registry: Registry) -> ValueSchemas:
    client = RegistryClient(registry, schema.format)
    found = client.subject(schema.subject, schema.version)
    writers = {found.id: _texts(found)}
    if schema.format is SchemaFormat.AVRO:
        decoding = Decoding(schema.format, found.text, found.references, framed=True, writers=writers)
    else:
        files = (*found.references, found.text)
        decoding = Decoding(schema.format, schema.message, files, framed=True, writers=writers)
    note = f"record is as version {found.version} of subject {schema.subject} has it (schema {found.id})"
    return ValueSchemas(decoding, note, client)
