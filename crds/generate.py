"""Writes the CRDs and their kustomization from the models: ``make crds``, or ``.venv/bin/python crds/generate.py``.

``tidegate.resources.kinds`` has the kinds. What a field's type, default and annotations say becomes its schema; its
docstring becomes its description. A test holds the files equal to what is made here.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal

import yaml
from pydantic.json_schema import GenerateJsonSchema

from tidegate.resources.base import API_GROUP, API_VERSION, NOT_LOOKED_AT, ResourceModel
from tidegate.resources.durations import format_duration
from tidegate.resources.kinds import AGE, KINDS, Column, Kind
from tidegate.resources.rules import VALIDATIONS

FOLDER: Final = Path(__file__).resolve().parent
HEADER: Final = "# Made from operator/tidegate/resources by crds/generate.py (make crds); do not edit.\n"

Schema = dict[str, Any]
Part = Literal["spec", "status"]

INT64: Final = 2**63 - 1
DEFINED: Final = (
    "type",
    "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields",
    "format",
    "enum",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "maxProperties",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "default",
    "description",
    "required",
    VALIDATIONS,
)
"""The keywords that are taken over from pydantic's schema, in the order in which they are written."""


def crd(kind: Kind) -> Schema:
    """The whole definition."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{API_GROUP}"},
        "spec": {
            "group": API_GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.name.lower(),
                "shortNames": [kind.short_name],
                "categories": ["tidegate"],
            },
            "versions": [
                {
                    "name": API_VERSION.removeprefix(f"{API_GROUP}/"),
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [_column(column) for column in (*kind.columns, AGE)],
                    **({"selectableFields": [{"jsonPath": p} for p in kind.selectable]} if kind.selectable else {}),
                    "schema": {"openAPIV3Schema": _resource(kind)},
                }
            ],
        },
    }


def _column(column: Column) -> Schema:
    return {
        "name": column.name,
        "type": column.type,
        **({"priority": 1} if column.wide else {}),
        "description": column.description,
        "jsonPath": column.path,
    }


def _resource(kind: Kind) -> Schema:
    status = schema(kind.status, "status")
    return {
        "type": "object",
        "description": kind.description,
        "required": ["spec"],
        **({VALIDATIONS: [{"rule": each.cel, "message": each.message} for each in kind.rules]} if kind.rules else {}),
        "properties": {
            "apiVersion": {"type": "string", "description": f"The version of this schema, {API_VERSION}."},
            "kind": {"type": "string", "description": f"The kind of this resource, {kind.name}."},
            "metadata": {"type": "object"},
            "spec": schema(kind.spec, "spec"),
            "status": {"type": status.pop("type"), "default": NOT_LOOKED_AT, **status},
        },
    }


# --- the models' schemas ----------------------------------------------------------------------------------------------


class _AsWritten(GenerateJsonSchema):
    """Defaults as a resource writes them."""

    def encode_default(self, dft: Any) -> Any:
        return format_duration(dft) if isinstance(dft, timedelta) else super().encode_default(dft)


def schema(model: type[ResourceModel], part: Part) -> Schema:
    """A structural schema of what users write (``spec``) or of what the operator does (``status``)."""
    made = model.model_json_schema(
        by_alias=True, schema_generator=_AsWritten, mode="validation" if part == "spec" else "serialization"
    )
    return _structural(made, made.get("$defs", {}), part)


def _structural(raw: Schema, definitions: Mapping[str, Schema], part: Part) -> Schema:
    node = _resolved(raw, definitions)
    node["description"] = " ".join(node.get("description", "").partition("\n\n")[0].split())
    node["default"] = _default(node.get("default"), part)
    if node.get("type") == "integer":
        node["format"] = "int64"
    found = {name: node[name] for name in DEFINED if _says_something(name, node.get(name))}
    if node.get("properties"):
        children = node["properties"].items()
        found["properties"] = {name: _structural(child, definitions, part) for name, child in children}
    # "additionalProperties: false" is how every structural schema is meant.
    for name in ("items", "additionalProperties"):
        if isinstance(node.get(name), dict):
            found[name] = _structural(node[name], definitions, part)
    return found


def _resolved(node: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """``node`` without references and without "or null": absent is how a resource says null."""
    own = {name: value for name, value in node.items() if name not in ("$ref", "anyOf")}
    if "$ref" in node:
        base = _resolved(definitions[node["$ref"].rpartition("/")[2]], definitions)
    elif "anyOf" in node:
        (only,) = (choice for choice in node["anyOf"] if choice != {"type": "null"})
        base = _resolved(only, definitions)
    else:
        base = {}
    both = (*base.get(VALIDATIONS, ()), *own.get(VALIDATIONS, ()))
    rules = [{"rule": each["rule"], "message": each["message"]} for each in both]
    return base | own | ({VALIDATIONS: rules} if rules else {})


def _default(default: Any, part: Part) -> Any:
    # The operator writes every member of a status that it knows.
    if part == "status":
        return None
    if isinstance(default, dict):
        return {name: value for name, value in default.items() if value is not None}
    return default


def _says_something(name: str, value: Any) -> bool:
    if name in ("minimum", "maximum"):
        return value is not None and abs(value) != INT64
    # An empty list or object and an absent one mean the same.
    return value not in (None, [], {}, "")


# --- the files --------------------------------------------------------------------------------------------------------


class _Dumper(yaml.SafeDumper):
    """Block style, in which only short lists are on one line; long texts are folded."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the base's signature
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, False)

    def sequence(self, data: list[Any]) -> yaml.Node:
        short = all(isinstance(each, str) for each in data) and sum(len(each) + 2 for each in data) < 80
        return self.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=short)

    def text(self, data: str) -> yaml.Node:
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=">" if len(data) > 80 else None)


_Dumper.add_representer(list, _Dumper.sequence)
_Dumper.add_representer(str, _Dumper.text)


def _yaml(data: Schema) -> str:
    return HEADER + yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)


def files() -> dict[str, str]:
    """Text by file name."""
    made = {f"{kind.plural}.{API_GROUP}.yaml": _yaml(crd(kind)) for kind in KINDS}
    kustomization = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": [*made]}
    return made | {"kustomization.yaml": _yaml(kustomization)}


def outdated(*, write: bool) -> list[str]:
    """The names of the files that are not what they should be; with ``write`` they are made anew."""
    wanted = files()
    stale = [path for path in FOLDER.glob("*.yaml") if path.name not in wanted]
    changed = [name for name, text in wanted.items() if not _is(FOLDER / name, text)]
    if write:
        for path in stale:
            path.unlink()
        for name in changed:
            (FOLDER / name).write_text(wanted[name], encoding="utf-8")
    return sorted((*(path.name for path in stale), *changed))


def _is(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    print("\n".join(outdated(write=True)), file=sys.stderr)
