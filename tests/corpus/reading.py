"""The corpus of resources, read as ``kubectl`` reads it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tidegate.resources.base import SpecModel
from tidegate.resources.kinds import KINDS

FOLDER: Final = Path(__file__).parent
EXPECT: Final = "# expect: "

SPECS: Final = {kind.name: kind.spec for kind in KINDS}
PLURALS: Final = {kind.name: kind.plural for kind in KINDS}


class _Loader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: a timestamp is text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True, slots=True)
class Case:
    """One file: the resource, what it replaces, and what a refusal has to say (by the models, by the API server).

    ``-`` for the latter: the CRD cannot say it, so the API server takes the resource and the operator refuses it.
    """

    name: str
    resource: dict[str, Any]
    replaces: dict[str, Any] | None
    expect: tuple[str, str] | None

    @property
    def kind(self) -> str:
        return str(self.resource["kind"])

    @property
    def spec(self) -> type[SpecModel]:
        return SPECS[self.kind]

    def __str__(self) -> str:
        return self.name


def read_case(path: Path) -> Case:
    text = path.read_text(encoding="utf-8")
    first, _, _ = text.partition("\n")
    expect = None
    if first.startswith(EXPECT):
        models, _, server = first.removeprefix(EXPECT).partition("|")
        expect = (models, server or models)
    documents = list(yaml.load_all(text, _Loader))
    return Case(path.stem, documents[-1], documents[0] if len(documents) == 2 else None, expect)


def read_cases(folder: str) -> list[Case]:
    """The cases of ``valid`` or ``invalid``, and those of policies that say the same of an ``OffsetReset``, an
    ``OffsetBackup`` or an ``OffsetMirror``."""
    read = [read_case(path) for path in sorted((FOLDER / folder).glob("*.yaml"))]
    others = [same(case) for case in read for same in (_as_offset_reset, _as_offset_backup, _as_offset_mirror)]
    return read + [case for case in others if case is not None]


_SHARED: Final = {"connectionRef", "group", "groups", "topics", "spark", "reset"}
_ABOUT_IDS: Final = ("reset-id", "reset-name", "reset-without-id", "undo-itself", "undo-own")


def _as_offset_reset(case: Case) -> Case | None:
    """What a policy asks for, asked for by an ``OffsetReset``; ``None`` where it is about more, or about the id."""
    spec = case.resource.get("spec") or {}
    reset = spec.get("reset", {"to": {"earliest": {}}})
    if case.kind != "OffsetResetPolicy" or case.replaces is not None or set(spec) - _SHARED:
        return None
    if not isinstance(reset, dict) or any(part in case.name for part in _ABOUT_IDS):
        return None
    name = case.name.replace("orp-", "ors-as-policy-", 1)
    resource = {
        **case.resource,
        "kind": "OffsetReset",
        "metadata": {"name": name},
        "spec": {n: v for n, v in spec.items() if n != "reset"} | {n: v for n, v in reset.items() if n != "id"},
    }
    expect = None
    if case.expect is not None:
        models, server = (
            text.replace("reset.", "").replace("a policy with", "an OffsetReset with") for text in case.expect
        )
        expect = (models, server)
    return Case(name, resource, None, expect)


def _as_offset_backup(case: Case) -> Case | None:
    """What a policy says of its connection or of Spark, said by an ``OffsetBackup``; ``None`` where it says more."""
    backup = {"schedule": "1h", "storage": {"folder": {"path": "offsets", "claim": "backups"}}}
    return _as_another(
        case, "OffsetBackup", "obk", ("orp-spark-", "orp-connection-"), ("connectionRef", "spark"), backup
    )


def _as_offset_mirror(case: Case) -> Case | None:
    """What a policy says of Spark, said by an ``OffsetMirror``; ``None`` where it says more."""
    mirror = {
        "source": {"name": "old"},
        "target": {"name": "new"},
        "topics": {"include": ["orders"]},
        "engine": "Spark",
    }
    return _as_another(case, "OffsetMirror", "omr", ("orp-spark-",), ("spark",), mirror)


def _as_another(
    case: Case, kind: str, prefix: str, about: tuple[str, ...], fields: tuple[str, ...], more: dict[str, Any]
) -> Case | None:
    """``fields``: what of the policy's spec is taken over; ``more``: what the other kind needs besides."""
    spec = case.resource.get("spec") or {}
    if case.kind != "OffsetResetPolicy" or case.replaces is not None or set(spec) - {"connectionRef", "group", "spark"}:
        return None
    if not case.name.startswith(about):
        return None
    name = case.name.replace("orp-", f"{prefix}-as-policy-", 1)
    shared = {field: value for field, value in spec.items() if field in fields}
    resource = {**case.resource, "kind": kind, "metadata": {"name": name}, "spec": {**shared, **more}}
    return Case(name, resource, None, case.expect)
