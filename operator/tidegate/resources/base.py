"""What the kinds share: the models' bases, references, and the one way in, :func:`parse_spec`.

The CRDs in ``crds/`` are made of the models (``make crds``): a resource gets the same verdict from both
(``tests/corpus``). The docstring below a field is what ``kubectl explain`` says of it; the first paragraph of a model's
docstring is what it says of a list's entry, and of a whole spec or status.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Self, TypeVar, cast, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    StrictInt,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails

from tidegate.resources import partitions
from tidegate.resources.fields import NamespaceName, PartitionNumbers, ResourceName, TopicPattern
from tidegate.resources.rules import Rule, Transition, add_rules, problem, rules_of, unique

API_GROUP: Final = "tidegate.io"
API_VERSION: Final = "tidegate.io/v1alpha1"

NOT_LOOKED_AT: Final = {"observedGeneration": -1}
"""The status that the CRDs give a resource until the operator writes one: for kstatus it is still in progress."""


class ResourceModel(BaseModel):
    """Base of all parts of a resource: camelCase on the wire, nothing unknown, immutable."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        validate_by_name=True,
        validate_by_alias=True,
    )

    rules: ClassVar[tuple[Rule, ...]] = ()

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        cls.rules = rules_of(cls)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        found = handler(schema)
        add_rules(handler.resolve_ref_schema(found), cls.rules, handler)
        return found

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, value: Any) -> Any:
        """The API server prunes nulls before it fills in defaults; so ``tls:`` with nothing behind it is no ``tls``."""
        if isinstance(value, Mapping):
            return {name: member for name, member in value.items() if member is not None}
        return value

    @model_validator(mode="after")
    def _rules_hold(self) -> Self:
        broken = [each.message for each in self.rules if each.holds is not None and not each.holds(self)]
        if broken:
            raise problem("; ".join(broken))
        return self

    def to_json(self) -> dict[str, Any]:
        """As the API server stores it: camelCase, durations and timestamps as text, absent members left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class SpecModel(ResourceModel):
    """A ``spec``. ``transitions`` say what an update may not change, beside those of single fields."""

    transitions: ClassVar[tuple[Transition, ...]] = ()

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        found = super().__get_pydantic_json_schema__(schema, handler)
        add_rules(handler.resolve_ref_schema(found), cls.transitions, handler)
        return found


class StatusModel(ResourceModel):
    """A ``status``, and the generation of the spec that it speaks of."""

    observed_generation: Annotated[StrictInt, Field(ge=-1)] | None = None
    """The generation of the spec that this status describes; -1 before the operator has reconciled it."""


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
    problems = tuple(_forbidden_changes(model, before, after))
    if problems:
        raise InvalidResource(problems)
    return parsed


def _forbidden_changes(
    model: type[SpecModel], before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[Problem]:
    for transition in model.transitions:
        if not transition.allows(before, after):
            yield Problem("spec", transition.message)
    for name, field in model.model_fields.items():
        alias = field.alias or name
        if before.get(alias) is not None and after.get(alias) is not None:
            for each in field.metadata:
                if isinstance(each, Transition) and not each.allows(before[alias], after[alias]):
                    yield Problem(f"spec.{alias}", each.message)


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


class _Recent:
    """The models that were read last, each of the very object that it was read from.

    A pass reads the status of its resource several times, and both are immutable. A slot is one tuple, so any thread
    may read and write it without a lock.
    """

    def __init__(self, size: int) -> None:
        self._slots: list[tuple[object, type[ResourceModel], ResourceModel] | None] = [None] * size

    def get(self, model: type[Model], value: object) -> Model | None:
        found = self._slots[self._slot(value)]
        if found is None or found[0] is not value or found[1] is not model:
            return None
        return cast("Model", found[2])

    def put(self, value: object, parsed: ResourceModel) -> None:
        self._slots[self._slot(value)] = (value, type(parsed), parsed)

    def _slot(self, value: object) -> int:
        # Addresses are multiples of 16.
        return (id(value) >> 4) % len(self._slots)


_recent: Final = _Recent(251)


def _parse(model: type[Model], value: Any, root: str) -> Model:
    known = _recent.get(model, value)
    if known is not None:
        return known
    try:
        # kopf hands out read-only views, which pydantic does not take for a dict.
        plain = dict(value) if isinstance(value, Mapping) else value
        parsed = model.model_validate(plain, by_alias=True, by_name=False)
    except ValidationError as error:
        raise InvalidResource(tuple(_problem(model, root, details) for details in error.errors())) from None
    _recent.put(value, parsed)
    return parsed


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


# --- shared parts -----------------------------------------------------------------------------------------------------


class ConnectionRef(ResourceModel):
    """A ``KafkaConnection`` in the same namespace."""

    name: ResourceName
    """The name of the KafkaConnection."""


class SharedConnectionRef(ConnectionRef):
    """A ``KafkaConnection`` in the same namespace, or in another one that serves this one."""

    namespace: NamespaceName | None = None
    """The namespace of the KafkaConnection. The KafkaConnection has to list this resource's namespace in
    allow.namespaces. Without this field, the resource's own namespace."""


class PartitionSelection(ResourceModel):
    """Partitions of one topic, or of all topics that match a pattern."""

    topic: TopicPattern
    """The topic's name, or a pattern in which '*' stands for any characters."""

    partitions: PartitionNumbers | None = None
    """The partitions, as a list of at most 64 numbers and ranges, such as [0, 1, "3-5"]. Without this field, all
    partitions of the topic. Text such as 0,1,3-5, the form of earlier versions, is still read."""

    @property
    def numbers(self) -> frozenset[int] | None:
        """The partition numbers; ``None`` for all."""
        return None if self.partitions is None else partitions.numbers_of(self.partitions)


MAX_SELECTIONS: Final = 50

PartitionSelections = Annotated[
    tuple[PartitionSelection, ...],
    Field(min_length=1, max_length=MAX_SELECTIONS),
    unique("must name each topic once: put its partitions into one entry", "topic"),
]
