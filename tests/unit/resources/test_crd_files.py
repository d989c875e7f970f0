"""The CRDs in ``crds/`` and the models say the same; everything in them is described."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic.json_schema import GenerateJsonSchema

from corpus.reading import PLURALS
from tidegate.resources import (
    ConnectionStatus,
    ConsumerGroupPauseSpec,
    KafkaConnectionSpec,
    OffsetResetPolicySpec,
    OffsetResetSpec,
    OffsetResetStatus,
    PauseStatus,
    PolicyStatus,
    spark_conf,
)
from tidegate.resources.base import ResourceModel
from tidegate.resources.connection import ALLOWED_PROPERTIES
from tidegate.resources.durations import format_duration

CRDS = Path(__file__).parents[3] / "crds"

MODELS: dict[str, dict[str, type[ResourceModel]]] = {
    "KafkaConnection": {"spec": KafkaConnectionSpec, "status": ConnectionStatus},
    "ConsumerGroupPause": {"spec": ConsumerGroupPauseSpec, "status": PauseStatus},
    "OffsetResetPolicy": {"spec": OffsetResetPolicySpec, "status": PolicyStatus},
    "OffsetReset": {"spec": OffsetResetSpec, "status": OffsetResetStatus},
}

COLUMNS = {
    "KafkaConnection": ["Ready", "Brokers", "Resettable", "Cluster", "Age"],
    "ConsumerGroupPause": ["Group", "Phase", "Paused", "Resumes", "Reason", "Age"],
    "OffsetResetPolicy": ["Group", "Reset", "Phase", "Replayed", "Skipped", "Ready", "Age"],
    "OffsetReset": [
        *("Group", "Phase", "Partitions", "Replayed", "Skipped", "Age"),
        *("Way", "Standstill", "Finished", "Plan", "Reason"),
    ],
}
SHORT_NAMES = {
    "KafkaConnection": "kconn",
    "ConsumerGroupPause": "cgp",
    "OffsetResetPolicy": "orp",
    "OffsetReset": "ors",
}


def crd(kind: str) -> dict[str, Any]:
    text = (CRDS / f"{PLURALS[kind]}.tidegate.io.yaml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


def version(kind: str) -> dict[str, Any]:
    (only,) = crd(kind)["spec"]["versions"]
    assert isinstance(only, dict)
    return only


def schema(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = version(kind)["schema"]["openAPIV3Schema"]
    return found


def nodes(node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    if "items" in node:
        yield from nodes(node["items"], f"{path}[]")
    if isinstance(node.get("additionalProperties"), dict):
        yield from nodes(node["additionalProperties"], f"{path}{{}}")


def shape_of_crd(root: dict[str, Any], path: str) -> dict[str, dict[str, Any]]:
    return {
        where: {
            "type": node.get("type"),
            "required": sorted(node.get("required", [])),
            "enum": node.get("enum"),
            "default": node.get("default"),
            **{name: node[name] for name in BOUNDS if name in node},
        }
        for where, node in nodes(root, path)
    }


class _AsWritten(GenerateJsonSchema):
    """Defaults as a resource writes them."""

    def encode_default(self, dft: Any) -> Any:
        return format_duration(dft) if isinstance(dft, timedelta) else super().encode_default(dft)


BOUNDS = ("minItems", "maxItems", "minimum", "maximum", "maxProperties")
INT64 = 2**63 - 1


def resolved(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """``node`` without references and without "or null": absent is how a resource says null."""
    own = {name: value for name, value in node.items() if name not in ("$ref", "anyOf")}
    if "$ref" in node:
        return resolved(definitions[node["$ref"].rpartition("/")[2]], definitions) | own
    if "anyOf" in node:
        (only,) = (choice for choice in node["anyOf"] if choice != {"type": "null"})
        return resolved(only, definitions) | own
    return node


def shape_of_model(root: dict[str, Any], path: str) -> dict[str, dict[str, Any]]:
    definitions = root.get("$defs", {})
    shape: dict[str, dict[str, Any]] = {}

    def visit(raw: dict[str, Any], where: str) -> None:
        node = resolved(raw, definitions)
        default = node.get("default")
        if isinstance(default, dict):
            default = {name: value for name, value in default.items() if value is not None}
        is_map = isinstance(node.get("additionalProperties"), dict)
        shape[where] = {
            "type": node.get("type"),
            "required": sorted(node.get("required", [])),
            "enum": node.get("enum"),
            # An empty list or object and an absent one mean the same.
            "default": default if default not in ([], {}) else None,
            **{name: node[name] for name in BOUNDS if name in node and abs(node[name]) != INT64},
        }
        for name, child in node.get("properties", {}).items():
            visit(child, f"{where}.{name}")
        if "items" in node:
            visit(node["items"], f"{where}[]")
        if is_map:
            visit(node["additionalProperties"], f"{where}{{}}")

    visit(root, path)
    return shape


@pytest.mark.parametrize("part", ["spec", "status"])
@pytest.mark.parametrize("kind", MODELS)
def test_models_and_crds_have_the_same_shape(kind: str, part: str) -> None:
    model = MODELS[kind][part].model_json_schema(by_alias=True, schema_generator=_AsWritten)

    expected = shape_of_model(model, part)
    found = shape_of_crd(schema(kind)["properties"][part], part)

    if part == "status":
        # The operator writes every member it knows: defaults of a status are its own matter.
        for members in (*expected.values(), *found.values()):
            members["default"] = None
    assert found == expected


@pytest.mark.parametrize("kind", MODELS)
def test_every_field_is_described_in_whole_sentences(kind: str) -> None:
    missing = [
        path
        for path, node in nodes(schema(kind), "")
        if path != ".metadata" and not node.get("description", "").endswith(".")
    ]

    assert missing == []


@pytest.mark.parametrize("kind", MODELS)
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


@pytest.mark.parametrize("kind", MODELS)
def test_names_columns_and_subresource(kind: str) -> None:
    names = crd(kind)["spec"]["names"]

    assert (names["shortNames"], names["categories"]) == ([SHORT_NAMES[kind]], ["tidegate"])
    assert [column["name"] for column in version(kind)["additionalPrinterColumns"]] == COLUMNS[kind]
    assert version(kind)["subresources"] == {"status": {}}
    assert crd(kind)["spec"]["scope"] == "Namespaced"


@pytest.mark.parametrize("kind", MODELS)
def test_conditions_are_a_map_by_type(kind: str) -> None:
    conditions = schema(kind)["properties"]["status"]["properties"]["conditions"]

    assert (conditions["x-kubernetes-list-type"], conditions["x-kubernetes-list-map-keys"]) == ("map", ["type"])


def test_the_allowed_client_settings_are_those_of_the_rule() -> None:
    properties = schema("KafkaConnection")["properties"]["spec"]["properties"]["properties"]
    rule, message = (properties["x-kubernetes-validations"][0][part] for part in ("rule", "message"))

    assert "[" + ", ".join(f"'{name}'" for name in ALLOWED_PROPERTIES) + "]" in rule
    assert ", ".join(ALLOWED_PROPERTIES) + ";" in message


@pytest.mark.parametrize("kind", ["OffsetResetPolicy", "OffsetReset"])
def test_spark_settings_are_those_of_the_operator(kind: str) -> None:
    settings = schema(kind)["properties"]["spec"]["properties"]["spark"]["properties"]["sparkConf"]

    assert [(rule["rule"], rule["message"]) for rule in settings["x-kubernetes-validations"]] == [
        (
            f"self.all(name, {_in(setting.name for setting in spark_conf.ALLOWED)} || {_IS_NODE_SELECTOR})",
            "only the settings of Spark that docs/reference/spark-conf.md lists can be given, and those that the "
            "chart's spark.allowedConf adds: remove the others",
        ),
        *(
            (
                f"self.all(name, !({whose}) || self[name].matches('^({form.pattern})$'))",
                f"{form.kind} must be {form.says}",
            )
            for form, whose in _names_by_form().items()
        ),
    ]
    (value,) = settings["additionalProperties"]["x-kubernetes-validations"]
    assert value == {
        "rule": f"self.matches('^{spark_conf.VALUE.pattern}$') && !self.contains('${{')",
        "message": f"values must be {spark_conf.VALUE.says}",
    }


_IS_NODE_SELECTOR = f"name.matches('^{spark_conf.NODE_SELECTOR}$')"


def _in(names: Iterable[str]) -> str:
    return "name in [" + ", ".join(f"'{name}'" for name in names) + "]"


def _names_by_form() -> dict[spark_conf.Form, str]:
    """In CEL, which names have values of each form."""
    names: dict[spark_conf.Form, list[str]] = {}
    for setting in spark_conf.ALLOWED:
        names.setdefault(setting.form, []).append(setting.name)
    return {
        form: _in(those) + (f" || {_IS_NODE_SELECTOR}" if form is spark_conf.NAME else "")
        for form, those in names.items()
    }


def test_the_kustomization_names_every_crd() -> None:
    kustomization = yaml.safe_load((CRDS / "kustomization.yaml").read_text(encoding="utf-8"))

    assert sorted(kustomization["resources"]) == sorted(path.name for path in CRDS.glob("*.tidegate.io.yaml"))
