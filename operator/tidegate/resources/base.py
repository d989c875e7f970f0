"""What the kinds share: field types, references, and the one way in, :func:`parse_spec`.

Models mirror the CRDs in ``crds/``: a resource gets the same verdict from both (``tests/corpus``). Durations become
``timedelta`` and timestamps aware ``datetime`` here and nowhere else.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar, Final, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StrictInt,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails, PydanticCustomError

from tidegate.resources import durations, partitions, timestamps

API_GROUP: Final = "tidegate.io"
API_VERSION: Final = "tidegate.io/v1alpha1"

NOT_LOOKED_AT: Final = {"observedGeneration": -1}
"""The status that the CRDs give a resource until the operator writes one: for kstatus it is still in progress."""


class ResourceModel(BaseModel):
    """Base of all parts of a resource: camelCase on the wire, nothing unknown, immutable."""

    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", frozen=True, validate_by_name=True, validate_by_alias=True
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, value: Any) -> Any:
        """The API server prunes nulls before it fills in defaults; so ``tls:`` with nothing behind it is no ``tls``."""
        if isinstance(value, Mapping):
            return {name: member for name, member in value.items() if member is not None}
        return value

    def to_json(self) -> dict[str, Any]:
        """As the API server stores it: camelCase, durations and timestamps as text, absent members left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


Transition = Callable[[Mapping[str, Any], Mapping[str, Any]], "Problem | None"]
"""A check of an update: (old spec, new spec), both as written with the defaults filled in, since the API server
compares what is written and not what it means (``60s`` is not ``1m``)."""


class SpecModel(ResourceModel):
    """A ``spec``. ``transitions`` say what an update may not change."""

    transitions: ClassVar[tuple[Transition, ...]] = ()


class StatusModel(ResourceModel):
    """A ``status``, and the generation of the spec that it speaks of."""

    observed_generation: Annotated[StrictInt, Field(ge=-1)] | None = None


# --- problems -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a resource. ``path`` is dotted and camelCase, as ``kubectl explain`` takes it, with list
    positions in brackets (``spec.reset.partitions[1].topic``); ``message`` says what is wrong and what to do."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class InvalidResource(ValueError):
    """A resource that cannot be used. Its text lists every problem found."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems: Final = problems


def problem(message: str) -> PydanticCustomError:
    """The error that a validator raises: its text reaches the user as it is."""
    return PydanticCustomError("tidegate", "{message}", {"message": message})


Model = TypeVar("Model", bound=ResourceModel)
Spec = TypeVar("Spec", bound=SpecModel)
Status = TypeVar("Status", bound=StatusModel)


def parse_spec(model: type[Spec], obj: Mapping[str, Any]) -> Spec:
    """The ``spec`` of the resource ``obj`` (the whole object as the API server gives it).

    Raises :class:`InvalidResource` with every problem that could be found.
    """
    if obj.get("spec") is None:
        raise InvalidResource((Problem("spec", "is required: add it"),))
    return _parse(model, obj["spec"], "spec")


def parse_update(model: type[Spec], old: Mapping[str, Any], new: Mapping[str, Any]) -> Spec:
    """The ``spec`` of ``new``, which replaces ``old``. Raises :class:`InvalidResource` also for a forbidden change.

    The API server enforces the same by the CRDs' transition rules; this is for what does not pass through it.
    """
    parsed = parse_spec(model, new)
    before = _with_defaults(old["spec"], parse_spec(model, old).to_json())
    after = _with_defaults(new["spec"], parsed.to_json())
    problems = tuple(found for check in model.transitions if (found := check(before, after)) is not None)
    if problems:
        raise InvalidResource(problems)
    return parsed


def read_status(model: type[Status], obj: Mapping[str, Any]) -> Status:
    """The ``status`` of the resource ``obj``; an empty one when nothing was written yet, or by somebody else."""
    try:
        return _status(model, obj)
    except InvalidResource:
        return model()


def has_readable_status(model: type[StatusModel], obj: Mapping[str, Any]) -> bool:
    """Whether ``read_status`` tells what was written, if anything was."""
    try:
        _status(model, obj)
    except InvalidResource:
        return False
    return True


def _status(model: type[Status], obj: Mapping[str, Any]) -> Status:
    status = obj.get("status") or {}
    return model() if status == NOT_LOOKED_AT else _parse(model, status, "status")


def _parse(model: type[Model], value: Any, root: str) -> Model:
    try:
        # kopf hands out read-only views, which pydantic does not take for a dict.
        plain = dict(value) if isinstance(value, Mapping) else value
        return model.model_validate(plain, by_alias=True, by_name=False)
    except ValidationError as error:
        raise InvalidResource(tuple(_problem(model, root, details) for details in error.errors())) from None


def _with_defaults(written: Any, parsed: Any) -> Any:
    if isinstance(written, Mapping) and isinstance(parsed, Mapping):
        present = {name: value for name, value in written.items() if value is not None}
        return {name: _with_defaults(present.get(name, value), value) for name, value in parsed.items()}
    return written


def _problem(model: type[ResourceModel], root: str, details: ErrorDetails) -> Problem:
    path = root + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in _location(details))
    return Problem(path, _message(model, details))


def _location(details: ErrorDetails) -> tuple[int | str, ...]:
    # pydantic marks an error in a mapping's key; to a reader the key itself is where it is.
    return tuple(part for part in details["loc"] if part != "[key]")


def _message(model: type[ResourceModel], details: ErrorDetails) -> str:
    context = details.get("ctx", {})
    match details["type"]:
        case "missing":
            return "is required: add it"
        case "extra_forbidden":
            return _unknown_field(model, details["loc"])
        case "enum" | "literal_error":
            return f"must be one of {context['expected'].replace(' or ', ', ')}, not {_shown(details['input'])}"
        case "string_type":
            return f"must be a string: put {_shown(details['input'])} in quotes"
        case "int_type":
            return f"must be a whole number without quotes, not {_shown(details['input'])}"
        case "bool_type":
            return f"must be true or false without quotes, not {_shown(details['input'])}"
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"must be an object with named members, not {_shown(details['input'])}"
        case "tuple_type" | "list_type":
            return f"must be a list, not {_shown(details['input'])}"
        case "too_short":
            return f"must have at least {context['min_length']} entry; leave the field out if there is none"
        case "too_long":
            return f"must have at most {context['max_length']} entries, not {context['actual_length']}"
        case "string_too_short":
            return "must not be empty: give a value, or leave the field out if it is optional"
        case "string_too_long":
            return f"is too long: shorten it to at most {context['max_length']} characters"
        case "greater_than_equal":
            return f"must be {context['ge']} or more, not {_shown(details['input'])}"
        case "less_than_equal":
            return f"must be {context['le']} or less, not {_shown(details['input'])}"
        case _:
            return details["msg"]


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _unknown_field(model: type[ResourceModel], location: tuple[int | str, ...]) -> str:
    name = str(location[-1])
    known = _field_names(model, location[:-1])
    close = difflib.get_close_matches(name, known, n=1)
    guess = f"did you mean {close[0]}? " if close else "remove it; "
    return f"unknown field: {guess}known here: {', '.join(known) or 'none'}"


def _field_names(model: type[ResourceModel], location: tuple[int | str, ...]) -> list[str]:
    """The wire names of the members of the model that ``location`` leads to, from ``model`` down."""
    current: Any = model
    for part in location:
        if isinstance(part, int):
            continue
        field = next((f for f in current.model_fields.values() if f.alias == part), None)
        current = None if field is None else next(_models_in(field.annotation), None)
        if current is None:
            return []
    return [field.alias or name for name, field in current.model_fields.items()]


def _models_in(annotation: Any) -> Iterator[type[ResourceModel]]:
    if isinstance(annotation, type) and issubclass(annotation, ResourceModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


# --- field types ------------------------------------------------------------------------------------------------------


def matching(pattern: str, message: str, *, least: int = 1, most: int) -> Any:
    """A validator for text of ``least`` to ``most`` characters that matches ``pattern`` as a whole."""
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if not least <= len(text) <= most or compiled.fullmatch(text) is None:
            raise problem(message)
        return text

    return AfterValidator(check)


def unique(key: Callable[[Any], object], message: str) -> Any:
    """A validator for a tuple in which no two entries have the same ``key``."""

    def check(entries: tuple[Any, ...]) -> tuple[Any, ...]:
        if len({key(entry) for entry in entries}) != len(entries):
            raise problem(message)
        return entries

    return AfterValidator(check)


def _to_timedelta(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if not isinstance(value, str):
        raise problem(durations.ACCEPTED)
    try:
        return durations.parse_duration(value)
    except ValueError as error:
        raise problem(str(error)) from None


def _to_datetime(value: Any) -> datetime:
    # YAML 1.1 readers turn an unquoted timestamp into a datetime of their own.
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value
    if not isinstance(value, str):
        raise problem(timestamps.ACCEPTED)
    try:
        return timestamps.parse_timestamp(value)
    except ValueError as error:
        raise problem(str(error)) from None


def _positive(value: timedelta) -> timedelta:
    if value <= timedelta(0):
        raise problem("must be longer than 0s")
    return value


def _partition_text(value: str) -> str:
    try:
        partitions.parse_partitions(value)
    except ValueError as error:
        raise problem(str(error)) from None
    return value


Duration = Annotated[
    timedelta,
    BeforeValidator(_to_timedelta),
    PlainSerializer(durations.format_duration, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string"}),
]
"""A Go-style duration, 0 or longer."""

PositiveDuration = Annotated[Duration, AfterValidator(_positive)]

Timestamp = Annotated[
    datetime,
    BeforeValidator(_to_datetime),
    PlainSerializer(timestamps.format_timestamp, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string"}),
]
"""An RFC 3339 date-time with a zone."""

PartitionNumbers = Annotated[str, AfterValidator(_partition_text)]
"""A set of partition numbers such as ``0,3-5``; :func:`tidegate.resources.partitions.parse_partitions` reads it."""

ResourceName = Annotated[
    str,
    matching(
        r"[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
        "must be the name of a resource in this namespace: lower-case letters, digits, '-' and '.', "
        "at most 253 characters",
        most=253,
    ),
]

SecretKey = Annotated[
    str,
    matching(
        r"[-._a-zA-Z0-9]+",
        "must be a key of the Secret or ConfigMap: letters, digits, '-', '_' and '.', at most 253 characters",
        most=253,
    ),
]


def topic(pattern: str, message: str, *, most: int) -> Any:
    """A validator for a topic's name as ``org.apache.kafka.common.internals.Topic#validate`` takes it."""
    # The look-ahead is Python's only; the CRDs compare with "." and "..".
    return matching(rf"(?![.]{{1,2}}$){pattern}", message, most=most)


TOPIC_PATTERN_MESSAGE: Final = (
    "must be a topic name, or a pattern in which '*' stands for any characters: letters, digits, '.', '_' and '-', "
    "1 to 249 characters"
)

TopicPattern = Annotated[str, topic(r"[a-zA-Z0-9._*-]+", TOPIC_PATTERN_MESSAGE, most=249)]
"""A topic's name, or a pattern with ``*``."""

_GROUP: Final = r"[^\x00-\x20\x7f]([^\x00-\x1f\x7f]*[^\x00-\x20\x7f])?"

GROUP_MESSAGE: Final = (
    "must be a group id of 1 to 255 characters, without control characters and without spaces at its ends"
)

GroupId = Annotated[str, matching(_GROUP, GROUP_MESSAGE, most=255)]
GroupPattern = Annotated[
    str,
    matching(
        _GROUP,
        "must be a group id, or a pattern in which '*' stands for any characters: 1 to 255 characters, without control "
        "characters and without spaces at its ends",
        most=255,
    ),
]

Count = Annotated[StrictInt, Field(ge=0)]


# --- shared parts -----------------------------------------------------------------------------------------------------


class ConnectionRef(ResourceModel):
    """A ``KafkaConnection`` in the same namespace."""

    name: ResourceName


class PartitionSelection(ResourceModel):
    """Partitions of one topic, or of all topics that a pattern matches; ``partitions`` absent: all of them."""

    topic: TopicPattern
    partitions: PartitionNumbers | None = None

    @property
    def numbers(self) -> frozenset[int] | None:
        """The partition numbers; ``None`` for all."""
        return None if self.partitions is None else partitions.parse_partitions(self.partitions)


PartitionSelections = Annotated[
    tuple[PartitionSelection, ...],
    Field(min_length=1, max_length=50),
    unique(lambda selection: selection.topic, "must name each topic once: put its partitions into one entry"),
]
