"""The CRDs in ``crds/`` are those that the models make; and what an API server and its users need is in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, ClassVar

import pytest
import yaml
from pydantic import Field

from support.scripts import loaded
from tidegate.resources.base import InvalidResource, ResourceModel, SpecModel, parse_spec, parse_update
from tidegate.resources.fields import Duration, Timestamp
from tidegate.resources.kinds import KINDS
from tidegate.resources.rules import Transition, immutable, matching, rule, unique

CRDS = Path(__file__).parents[3] / "crds"
NAMES = {kind.name: f"{kind.plural}.tidegate.io.yaml" for kind in KINDS}


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    return loaded(CRDS / "generate.py")


def schema(kind: str) -> dict[str, Any]:
    definition = yaml.safe_load((CRDS / NAMES[kind]).read_text(encoding="utf-8"))
    (version,) = definition["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return found


def nodes(node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    if "items" in node:
        yield from nodes(node["items"], f"{path}[]")
    if isinstance(node.get("additionalProperties"), dict):
        yield from nodes(node["additionalProperties"], f"{path}{{}}")


# --- the files --------------------------------------------------------------------------------------------------------


def test_the_files_are_what_the_models_make(generator: ModuleType) -> None:
    assert generator.outdated(write=False) == [], "run: make crds"


def test_the_files_say_what_was_made(generator: ModuleType) -> None:
    """Folding a text over lines changes nothing of it."""
    for kind in KINDS:
        assert yaml.safe_load((CRDS / NAMES[kind.name]).read_text(encoding="utf-8")) == generator.crd(kind)


def test_an_outdated_file_is_made_anew_and_one_of_no_kind_removed(
    generator: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generator, "FOLDER", tmp_path)
    generator.outdated(write=True)
    assert generator.outdated(write=False) == []
    (tmp_path / "old.tidegate.io.yaml").write_text("")
    (tmp_path / "kustomization.yaml").write_text("")

    assert generator.outdated(write=True) == ["kustomization.yaml", "old.tidegate.io.yaml"]
    assert generator.outdated(write=False) == []


@pytest.mark.parametrize("kind", NAMES)
def test_every_field_is_described_in_whole_sentences(kind: str) -> None:
    missing = [
        path
        for path, node in nodes(schema(kind), "")
        if path != ".metadata" and not node.get("description", "").endswith(".")
    ]

    assert missing == []


@pytest.mark.parametrize("kind", NAMES)
def test_texts_lists_and_maps_of_a_spec_are_bounded(kind: str) -> None:
    """Otherwise the API server cannot bound the rules' cost, and a resource can grow without end."""
    unbounded = [
        path
        for path, node in nodes(schema(kind)["properties"]["spec"], "spec")
        if (node.get("type") == "string" and not {"maxLength", "enum"} & set(node))
        or (node.get("type") == "array" and "maxItems" not in node)
        or ("additionalProperties" in node and "maxProperties" not in node)
    ]

    assert unbounded == []


@pytest.mark.parametrize("kind", NAMES)
def test_the_operator_writes_no_rules_for_itself(kind: str) -> None:
    status = schema(kind)["properties"]["status"]

    assert [path for path, node in nodes(status, "status") if "x-kubernetes-validations" in node] == []
    conditions = status["properties"]["conditions"]
    assert (conditions["x-kubernetes-list-type"], conditions["x-kubernetes-list-map-keys"]) == ("map", ["type"])


# --- how a model becomes a schema -------------------------------------------------------------------------------------


class Part(ResourceModel):
    """One part.

    This is for developers.
    """

    part_name: Annotated[str, matching("a|b", "must be a or b", most=1)]
    """Its name."""

    since: Timestamp | None = None
    """Since when."""


class Whole(SpecModel):
    """A whole."""

    parts: Annotated[tuple[Part, ...], Field(max_length=3), unique("must differ", "part_name")] = ()
    """All of its parts."""

    first: Annotated[Part | None, immutable("make another")] = None
    """The first part,
    which stays."""

    wait: Duration | None = None
    """How long to wait."""

    transitions: ClassVar[tuple[Transition, ...]] = (
        Transition(
            "has(self.wait) == has(oldSelf.wait)", "wait stays", lambda old, new: ("wait" in old) == ("wait" in new)
        ),
    )

    @rule("!has(self.first) || has(self.wait)", "first needs wait")
    def _first_waits(self) -> bool:
        return self.first is None or self.wait is not None


def rules(node: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["rule"], each["message"]) for each in node.get("x-kubernetes-validations", [])]


def test_a_rule_stands_where_it_belongs(generator: ModuleType) -> None:
    made = generator.schema(Whole, "spec")
    parts, first = made["properties"]["parts"], made["properties"]["first"]

    assert rules(made) == [
        ("!has(self.first) || has(self.wait)", "first needs wait"),
        ("has(self.wait) == has(oldSelf.wait)", "wait stays"),
    ]
    assert rules(parts) == [("self.all(a, self.exists_one(b, a.partName == b.partName))", "must differ")]
    assert parts["x-kubernetes-list-map-keys"] == ["partName"]
    assert rules(parts["items"]["properties"]["partName"]) == [("self.matches('^(a|b)$')", "must be a or b")]
    assert rules(first) == [("self == oldSelf", "is immutable: make another")]
    assert all(not rules(node) for _, node in nodes(generator.schema(Whole, "status"), ""))


def test_docstrings_become_descriptions(generator: ModuleType) -> None:
    made = generator.schema(Whole, "spec")

    assert {path: node["description"] for path, node in nodes(made, "")} == {
        "": "A whole.",
        ".parts": "All of its parts.",
        ".parts[]": "One part.",
        ".parts[].partName": "Its name.",
        ".parts[].since": "Since when.",
        ".first": "The first part, which stays.",
        ".first.partName": "Its name.",
        ".first.since": "Since when.",
        ".wait": "How long to wait.",
    }


def test_a_time_is_checked_in_a_spec_and_formatted_in_a_status(generator: ModuleType) -> None:
    in_spec, in_status = (generator.schema(Part, part)["properties"]["since"] for part in ("spec", "status"))

    assert (in_spec["maxLength"], len(rules(in_spec)), "format" in in_spec) == (40, 1, False)
    assert in_status == {"type": "string", "format": "date-time", "description": "Since when."}


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"first": {"partName": "c"}, "wait": "1s"}, "spec.first.partName: must be a or b"),
        ({"parts": [{"partName": "a"}, {"partName": "a"}]}, "spec.parts: must differ"),
        ({"first": {"partName": "a"}}, "spec: first needs wait"),
    ],
)
def test_models_refuse_with_the_rules_messages(spec: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidResource) as refused:
        parse_spec(Whole, {"spec": spec})

    assert str(refused.value) == problem


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            {"wait": "1s", "first": {"partName": "a"}},
            {"wait": "1s", "first": {"partName": "b"}},
            "spec.first: is immutable: make another",
        ),
        ({"wait": "1s"}, {}, "spec: wait stays"),
    ],
)
def test_models_refuse_forbidden_changes(old: dict[str, Any], new: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidResource) as refused:
        parse_update(Whole, {"spec": old}, {"spec": new})

    assert str(refused.value) == problem


def test_a_field_may_come_and_go_that_cannot_change() -> None:
    with_first = {"spec": {"wait": "1s", "first": {"partName": "a"}}}

    assert parse_update(Whole, {"spec": {"wait": "1s"}}, with_first).first is not None
    assert parse_update(Whole, with_first, {"spec": {"wait": "1s"}}).first is None
