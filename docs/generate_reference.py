"""Writes what of ``docs/reference/`` follows from the tree: ``.venv/bin/python docs/generate_reference.py [--check]``.

The pages of the kinds are made of ``crds/``; in other pages it is the tables between ``<!-- begin x -->`` and
``<!-- end x -->``: of metrics and of variables, made of the code and its docstrings. ``--check`` writes nothing and
ends with 1 when a page is not what it should be.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import itertools
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import timedelta
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import yaml

import tidegate_agent.settings
from tidegate.jobs import settings as spark_settings
from tidegate.jobs.settings import SparkSettings
from tidegate.resources import spark_conf
from tidegate.service import settings as operator_settings
from tidegate.service.settings import Settings

ROOT: Final = Path(__file__).resolve().parents[1]
REFERENCE: Final = ROOT / "docs" / "reference"

_TOOLS: Final = "dev/devstack/toolcache.py"
_TESTED: Final = (
    ("Kafka brokers", _TOOLS, r'^KAFKA_VERSION = "(.+)"', "all tests"),
    ("", _TOOLS, r'^OLD_KAFKA_VERSION = "(.+)"', "which groups can be reset"),
    ("", "tests/kafka/test_broker_support.py", r'^    Release\("([\d.]+)"', "nightly: the same"),
    ("Kubernetes", _TOOLS, r'^KUBERNETES_VERSION = "v(.+)"', "all tests; a node with pods in `make e2e`"),
    ("etcd", _TOOLS, r'^ETCD_VERSION = "v(.+)"', "all tests with an API server"),
    ("Helm", _TOOLS, r'^HELM_VERSION = "v(.+)"', "the chart"),
    ("Kubeflow Spark operator", _TOOLS, r'^SPARK_OPERATOR_VERSION = "v(.+)"', "`make e2e`"),
    ("Spark", "requirements.lock", r"^pyspark==(\S+)", "all jobs"),
    ("confluent-kafka (librdkafka)", "requirements.lock", r"^confluent-kafka==(\S+)", "resets, pauses, agent"),
    ("aiokafka", "requirements.lock", r"^aiokafka==(\S+)", "resets, pauses, agent"),
    ("kafka-python", "requirements.lock", r"^kafka-python==(\S+)", "resets, pauses, agent"),
    (
        "kafka-clients (Java)",
        "dev/devstack/java_clients.py",
        r'"(\d+\.\d+\.\d+)"',
        "agent: the oldest and the newest, all of them nightly",
    ),
    (
        "Java of applications",
        "dev/devstack/java_clients.py",
        r"OTHER_JDKS: Final = \((\d+), (\d+)\)",
        "nightly; else 17",
    ),
    (
        "Spring Boot",
        "tests/agent/java/applications/boot/pom.xml",
        r"<boot\.version>(.+)</boot\.version>",
        "agent; in pods in `make e2e`",
    ),
    (
        "Quarkus, SmallRye",
        "dev/java/smallrye/pom.xml",
        r"quarkus-bom</artifactId>\s*<version>(.+)</version>",
        "resets, agent, with its connector; as Quarkus packages it nightly",
    ),
    ("franz-go", "tests/support/go/go.mod", r"twmb/franz-go v(\S+)", "resets, pauses by leading"),
    ("sarama", "tests/support/go/go.mod", r"IBM/sarama v(\S+)", "resets, pauses by leading"),
    ("segmentio/kafka-go", "tests/support/go/go.mod", r"segmentio/kafka-go v(\S+)", "resets, pauses by leading"),
    ("kafkajs", "tests/support/node/package.json", r'"kafkajs": "(.+)"', "resets, pauses by leading"),
)
"""What, the file that pins it, the pattern of its versions there, and what of Tidegate runs with it."""

Schema = Mapping[str, Any]


def pages(crds: Path = ROOT / "crds") -> dict[str, str]:
    """Text by file name, one page a kind."""
    found: dict[str, str] = {}
    for path in sorted(crds.glob("*.yaml")):
        definition = yaml.safe_load(path.read_text())
        if definition["kind"] == "CustomResourceDefinition":
            found[f"{definition['spec']['names']['singular']}.md"] = page(definition)
    return found


def tables() -> dict[str, str]:
    """Tables by the name in their marks."""
    return {
        "metrics": _table(("metric", "type", "labels", "meaning"), _metrics(ROOT / "operator" / "tidegate")),
        "settings": _table(("variable", "default", "meaning"), _operator_variables()),
        "spark settings": _table(("variable", "default", "meaning"), _spark_variables()),
        "spark conf": _table(("setting", "value", "what for"), _spark_conf()),
        "tested versions": _table(("what", "versions", "what runs with it"), _tested()),
        "agent settings": _table(("variable", "meaning"), _agent_variables()),
    }


def _tested() -> Iterator[tuple[str, ...]]:
    for what, file, pattern, runs in _TESTED:
        found = re.findall(pattern, (ROOT / file).read_text(), re.MULTILINE)
        if not found:
            raise ValueError(f"{file} names no version by {pattern}")
        versions = [version for each in found for version in ([each] if isinstance(each, str) else each)]
        yield what, ", ".join(dict.fromkeys(versions)), runs


def page(definition: Schema) -> str:
    """One kind's page."""
    spec = definition["spec"]
    names, version = spec["names"], spec["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    columns = ", ".join(
        column["name"] + (" (with `-o wide`)" if column.get("priority") else "")
        for column in version["additionalPrinterColumns"]
    )
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
    # A list that was text in an earlier version has no type (ADR 24).
    kind = str(field.get("type", "array" if "items" in field else "any"))
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


# --- tables -----------------------------------------------------------------------------------------------------------

_TYPES: Final = {"Counter": "counter", "Gauge": "gauge", "GaugeMetricFamily": "gauge", "Histogram": "histogram"}
_MARKED: Final = re.compile(r"(<!-- begin ([a-z ]+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)


def _metrics(package: Path) -> Iterator[tuple[str, ...]]:
    """Of every metric that the package makes: name, type, labels, help."""
    makers = [text for path in sorted(package.rglob("*.py")) if "prometheus_client" in (text := path.read_text())]
    for text in makers:
        for call in ast.walk(ast.parse(text)):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in _TYPES:
                named = (each.value for each in call.keywords if each.arg == "labels")
                name, meaning, *labels = (ast.literal_eval(each) for each in (*call.args, *named))
                total = "_total" if call.func.id == "Counter" else ""
                shown = ", ".join(f"`{label}`" for label in (labels[0] if labels else ()))
                yield f"`{name}{total}`", _TYPES[call.func.id], shown, _meaning_of(meaning)


def _operator_variables() -> Iterator[tuple[str, ...]]:
    told, defaults = _told(operator_settings, Settings), Settings()
    for name in Settings.model_fields:
        if name != "spark":
            yield f"`TIDEGATE_{name.upper()}`", _shown(getattr(defaults, name)), told[name]


def _spark_variables() -> Iterator[tuple[str, ...]]:
    told, defaults = _told(spark_settings, SparkSettings), SparkSettings()
    for field in fields(SparkSettings):
        end = spark_settings.VARIABLES.get(field.name, field.name.upper())
        yield f"`TIDEGATE_SPARK_{end}`", _shown(getattr(defaults, field.name)), told[field.name]


def _spark_conf() -> Iterator[tuple[str, ...]]:
    for setting in spark_conf.ALLOWED:
        yield f"`{setting.name}`", _meaning_of(setting.form.says), setting.reason


def _agent_variables() -> Iterator[tuple[str, ...]]:
    for constant, meaning in _told(tidegate_agent.settings, None).items():
        yield f"`{getattr(tidegate_agent.settings, constant)}`", meaning


def _told(module: ModuleType, cls: type | None) -> dict[str, str]:
    """The docstrings below the fields of a class, or below the constants of a module, by name."""
    body: list[ast.stmt] = ast.parse(inspect.getsource(module)).body
    if cls is not None:
        body = next(node.body for node in body if isinstance(node, ast.ClassDef) and node.name == cls.__name__)
    told: dict[str, str] = {}
    for field, below in itertools.pairwise(body):
        target = field.target if isinstance(field, ast.AnnAssign) else None
        if isinstance(field, ast.Assign):
            target = field.targets[0]
        if isinstance(target, ast.Name) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            told[target.id] = _meaning_of(str(below.value.value))
    return told


def _shown(value: Any) -> str:
    match value:
        case None | () | "":
            return "unset"
        case frozenset() if not value:
            return "unset"
        case timedelta():
            return f"{value.total_seconds():g}"
        case bool() | Mapping():
            return f"`{str(value).lower()}`"
        case int() | float():
            return f"{value:g}"
        case Enum():
            return f"`{value.value}`"
        case Path() if value.is_relative_to(ROOT):
            return f"`{spark_settings.IMAGE_FOLDER}`, in the tree `{value.relative_to(ROOT)}/`"
        case Path() if value.is_relative_to(tempfile.gettempdir()):
            return f"`<tmp>/{value.relative_to(tempfile.gettempdir())}`"
        case _:
            return f"`{value}`"


def _meaning_of(text: str) -> str:
    """A docstring as Markdown, on one line."""
    return " ".join(text.split()).replace("``", "`").replace("|", "\\|")


def _table(head: Sequence[str], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _with_tables(text: str, made: Mapping[str, str]) -> str:
    return _MARKED.sub(lambda found: f"{found[1]}{made[found[2]]}{found[3]}", text)


# --- the command ------------------------------------------------------------------------------------------------------


def wanted(reference: Path) -> dict[str, str]:
    """Each page's text as it should be, by file name."""
    made = tables()
    marked = {path.name: _with_tables(path.read_text(), made) for path in sorted(reference.glob("*.md"))}
    return marked | pages()


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or say which are out of date."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 when a page is out of date")
    check = parser.parse_args(arguments).check
    stale = {name: text for name, text in wanted(REFERENCE).items() if not _is(REFERENCE / name, text)}
    for name, text in stale.items():
        if check:
            sys.stderr.write(f"docs/reference/{name} is out of date: run .venv/bin/python docs/generate_reference.py\n")
        else:
            REFERENCE.mkdir(parents=True, exist_ok=True)
            (REFERENCE / name).write_text(text)
    return 1 if check and stale else 0


def _is(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
