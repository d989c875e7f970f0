"""Writes ``docs/reference/`` of the three kinds from ``crds/``: ``python docs/generate_reference.py [--check]``.

``--check`` writes nothing and ends with 1 when a page is not what it should be.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[1]
REFERENCE: Final = ROOT / "docs" / "reference"

Schema = Mapping[str, Any]


def pages(crds: Path = ROOT / "crds") -> dict[str, str]:
    """Text by file name, one page a kind."""
    found: dict[str, str] = {}
    for path in sorted(crds.glob("*.yaml")):
        definition = yaml.safe_load(path.read_text())
        if definition["kind"] == "CustomResourceDefinition":
            found[f"{definition['spec']['names']['singular']}.md"] = page(definition)
    return found


def page(definition: Schema) -> str:
    """One kind's page."""
    spec = definition["spec"]
    names, version = spec["names"], spec["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    columns = ", ".join(column["name"] for column in version["additionalPrinterColumns"])
    lines = [
        f"<!-- Made from crds/{definition['metadata']['name']}.yaml by docs/generate_reference.py; do not edit. -->",
        f"# {names['kind']}",
        "",
        _text(schema),
        "",
        f"`apiVersion: {spec['group']}/{version['name']}`, {spec['scope'].lower()}, short name "
        f"`{names['shortNames'][0]}`. `kubectl get` shows: {columns}.",
    ]
    for part in ("spec", "status"):
        lines += ["", f"## {part}", "", "| field | type | default | meaning |", "| --- | --- | --- | --- |"]
        lines += _rows(schema["properties"][part], "")
    return "\n".join(lines) + "\n"


def _rows(schema: Schema, path: str) -> Iterator[str]:
    required = set(schema.get("required", ()))
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        mark = " **(required)**" if name in required else ""
        yield f"| `{here}`{mark} | {_type(field)} | {_default(field)} | {_meaning(field)} |"
        items = field.get("items", {})
        if items.get("properties"):
            yield from _rows(items, f"{here}[]")
        else:
            yield from _rows(field, here)


def _type(field: Schema) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "integer or string"
    kind = str(field.get("type", "any"))
    if kind == "array":
        return f"list of {_type(field['items'])}"
    if kind == "object" and "additionalProperties" in field:
        return f"map of {_type(field['additionalProperties'])}"
    if field.get("enum"):
        return " \\| ".join(f"`{value}`" for value in field["enum"])
    return f"{kind} ({field['format']})" if field.get("format") in ("date-time",) else kind


def _default(field: Schema) -> str:
    if "default" not in field:
        return ""
    value = field["default"]
    return f"`{yaml.safe_dump(value, default_flow_style=True).splitlines()[0].strip()}`"


def _meaning(field: Schema) -> str:
    """The description, then each rule in the words in which a refusal gives it, where those add something."""
    rules = [rule["message"] for rule in field.get("x-kubernetes-validations", ()) if "message" in rule]
    told = " ".join(_sentence(rule) for rule in rules)
    return f"{_text(field)} {told}".strip().replace("|", "\\|")


def _sentence(rule: str) -> str:
    rule = " ".join(rule.split())
    verbs = ("must ", "is immutable")
    return f"*It {rule}.*" if rule.startswith(verbs) else f"*{rule[:1].upper()}{rule[1:]}.*"


def _text(schema: Schema) -> str:
    return " ".join(str(schema.get("description", "")).split())


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or say which are out of date."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 when a page is out of date")
    check = parser.parse_args(arguments).check
    stale = [name for name, text in pages().items() if not _is(REFERENCE / name, text)]
    for name in stale:
        if check:
            sys.stderr.write(f"docs/reference/{name} is out of date: run python docs/generate_reference.py\n")
        else:
            REFERENCE.mkdir(parents=True, exist_ok=True)
            (REFERENCE / name).write_text(pages()[name])
    return 1 if check and stale else 0


def _is(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
