"""Rules of resources, each written once: its CEL for the API server, its check for the operator, and one message.

A :class:`Facet` stands in the ``Annotated[...]`` of a field, :func:`rule` marks a method of a model. pydantic asks both
for their part of the schema from which ``crds/generate.py`` makes the CRDs. What the operator itself writes, which is
JSON schema's mode "serialization", has no rules.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, Final, TypeVar

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

VALIDATIONS: Final = "x-kubernetes-validations"


def problem(message: str) -> PydanticCustomError:
    """The error that a validator raises: its text reaches the user as it is."""
    return PydanticCustomError("tidegate", "{message}", {"message": message})


@dataclass(frozen=True, slots=True)
class Rule:
    """What has to hold of ``self``, in CEL, and what a refusal says. ``holds``: the same in Python, of the parsed
    value; absent where parsing checks it, or nobody but the API server. ``cel`` is empty where another rule of the CRD
    checks it."""

    cel: str
    message: str
    holds: Callable[[Any], bool] | None = None


def add_rules(schema: JsonSchemaValue, rules: Iterable[Rule | Transition], handler: GetJsonSchemaHandler) -> None:
    """Appended to those that ``schema`` has, where it is that of what users write."""
    added = [{"rule": each.cel, "message": each.message} for each in rules if each.cel]
    if added and handler.mode == "validation":
        schema[VALIDATIONS] = [*schema.get(VALIDATIONS, ()), *added]


# By identity, so that it can stand in a union of types, which are hashed.
@dataclass(frozen=True, slots=True, eq=False)
class Facet:
    """An annotation of a field: rules, the first of which that does not hold refuses the value, and keywords of the
    CRD's schema."""

    rules: tuple[Rule, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)

    def _check(self, value: Any) -> Any:
        for each in self.rules:
            if each.holds is not None and not each.holds(value):
                raise problem(each.message)
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        if all(each.holds is None for each in self.rules):
            return schema
        return core_schema.no_info_after_validator_function(self._check, schema)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        found = handler(schema) | dict(self.keywords)
        add_rules(found, self.rules, handler)
        return found


def must(holds: Callable[[Any], bool], cel: str, message: str, **keywords: Any) -> Facet:
    """A facet of one rule."""
    return Facet((Rule(cel, message, holds),), keywords)


def described(description: str) -> Facet:
    """What ``kubectl explain`` says of a list's entries or a map's values; a field has its docstring for this."""
    return Facet(keywords={"description": description})


def list_map(*keys: str) -> Facet:
    """A list whose entries ``keys`` tell apart, so that each can be applied by an owner of its own."""
    return Facet(keywords=_list_map(keys))


def _list_map(keys: Iterable[str]) -> dict[str, Any]:
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [to_camel(key) for key in keys]}


def matching(pattern: str, message: str, *, most: int) -> Facet:
    """Text of at most ``most`` characters that matches ``pattern``, RE2's and Python's, as a whole."""
    compiled = re.compile(pattern)
    return must(
        lambda text: len(text) <= most and compiled.fullmatch(text) is not None,
        cel_matches("self", pattern),
        message,
        maxLength=most,
    )


def topic(pattern: str, message: str, *, most: int) -> Facet:
    """A topic's name as ``org.apache.kafka.common.internals.Topic#validate`` takes it."""
    compiled = re.compile(pattern)
    return must(
        lambda text: len(text) <= most and compiled.fullmatch(text) is not None and text not in (".", ".."),
        f"{cel_matches('self', pattern)} && self != '.' && self != '..'",
        message,
        maxLength=most,
    )


def unique(message: str, *keys: str) -> Facet:
    """A list in which no two entries have the same values of the fields ``keys``, or without ``keys`` are the same."""
    key: Callable[[Any], object] = operator.attrgetter(*keys) if keys else str
    equal = " && ".join(f"a.{name} == b.{name}" for name in map(to_camel, keys)) or "a == b"
    return must(
        lambda entries: len({key(entry) for entry in entries}) == len(entries),
        f"self.all(a, self.exists_one(b, {equal}))",
        message,
        **(_list_map(keys) if keys else {}),
    )


def unique_by_server(message: str, *keys: str) -> Facet:
    """As :func:`unique` by ``keys``, for a list too long to compare its entries by a rule: the API server itself tells
    them apart, and says it in words of its own."""
    key: Callable[[Any], object] = operator.attrgetter(*keys)
    return must(lambda entries: len({key(entry) for entry in entries}) == len(entries), "", message, **_list_map(keys))


# --- fields of earlier versions ---------------------------------------------------------------------------------------


def gone(message: str) -> Facet:
    """Of a field that an earlier version had, which the operator refuses. Were it unknown to the API server, that would
    drop it without a word, and what it asked for would silently not happen any more. The CRD's rule: :func:`not_new`.
    """
    # What is in it is kept, or a strict client would complain of that and not show the message.
    keywords = {"x-kubernetes-preserve-unknown-fields": True}
    return must(lambda _: False, "", message, **keywords)


def not_new(is_there: str, message: str) -> tuple[Rule, ...]:
    """Rules on the whole object: a field that is ``gone`` is refused where it is written, and left in resources that an
    earlier operator has looked at. A rule of the field itself would refuse their status, too, which is to say so.

    ``is_there``: in CEL, of ``self``.
    """
    looked_at = "has(self.status) && has(self.status.observedGeneration) && self.status.observedGeneration >= 0"
    return (
        Rule(f"!({is_there}) || ({looked_at})", message),
        Rule(f"!({is_there}) || ({is_there.replace('self.', 'oldSelf.')})", message),
    )


# --- rules of a model's fields with one another -----------------------------------------------------------------------

Check = TypeVar("Check", bound=Callable[[Any], bool])

_MARK: Final = "rule"


def rule(cel: str, message: str) -> Callable[[Check], Check]:
    """Marks the method of a model that says whether its fields fit together, as ``cel`` does for the API server."""

    def mark(method: Check) -> Check:
        vars(method)[_MARK] = Rule(cel, message, method)
        return method

    return mark


def rules_of(model: type) -> tuple[Rule, ...]:
    """Those that methods of ``model`` and of its bases are marked with."""
    methods = (member for base in reversed(model.__mro__) for member in vars(base).values())
    return tuple(vars(each)[_MARK] for each in methods if isinstance(each, FunctionType) and _MARK in vars(each))


# --- rules of updates -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Transition:
    """What an update may not change: of a spec (``SpecModel.transitions``), or in the ``Annotated[...]`` of a spec's
    field, where it holds between two values and not when the field comes or goes, as in CEL.

    ``allows`` gets old and new as written with the defaults filled in, since the API server compares what is written
    and not what it means (``60s`` is not ``1m``).
    """

    cel: str
    message: str
    allows: Callable[[Any, Any], bool]

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        found = dict(handler(schema))
        add_rules(found, (self,), handler)
        return found


def immutable(instead: str) -> Transition:
    """A value that stays as it is; ``instead``: what to do."""
    return Transition("self == oldSelf", f"is immutable: {instead}", operator.eq)


# --- CEL --------------------------------------------------------------------------------------------------------------


def cel_matches(text: str, pattern: str) -> str:
    """Whether the expression ``text`` matches ``pattern`` as a whole."""
    # Without parentheses the anchors would belong to the first and the last of several alternatives.
    whole = f"^({pattern})$" if "|" in pattern else f"^{pattern}$"
    return f"{text}.matches({'r' if chr(92) in whole else ''}'{whole}')"


def cel_list(texts: Iterable[str]) -> str:
    """A list of strings, none of which has a quote or backslash."""
    return "[" + ", ".join(f"'{text}'" for text in texts) + "]"


def cel_exactly_one(fields: Iterable[str]) -> str:
    """Whether exactly one of the fields of ``self`` is set."""
    return "[" + ", ".join(f"has(self.{name})" for name in fields) + "].filter(given, given).size() == 1"
