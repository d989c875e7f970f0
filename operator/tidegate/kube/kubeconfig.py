"""Which namespace a command is about where it is not told: as kubectl decides it. Without the Kubernetes client, which
takes longer to import than most commands take."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

DEFAULT: Final = "default"
_OF_A_POD: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def own_namespace(environment: Mapping[str, str], context: str | None = None, *, of_a_pod: Path = _OF_A_POD) -> str:
    """The namespace of the kubeconfig's context, that of the pod that this runs in, or ``default``.

    ``context``: another one than the current one. Of several files in ``KUBECONFIG`` the first that says something
    counts. What can't be read says nothing: whoever asks the API server next hears of it.
    """
    if not environment.get("KUBECONFIG") and environment.get("KUBERNETES_SERVICE_HOST"):
        try:
            return of_a_pod.read_text(encoding="utf-8").strip() or DEFAULT
        except OSError:
            return DEFAULT
    found = tuple(_configurations(environment))
    wanted = context or next((str(c["current-context"]) for c in found if c.get("current-context")), "")
    for configuration in found:
        for each in _entries(configuration.get("contexts")):
            if each.get("name") == wanted and isinstance(each.get("context"), Mapping):
                return str(each["context"].get("namespace") or DEFAULT)
    return DEFAULT


def _configurations(environment: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
    named = environment.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    for path in filter(None, named.split(os.pathsep)):
        try:
            read = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError):
            continue
        if isinstance(read, Mapping):
            yield read


def _entries(value: Any) -> Iterator[Mapping[str, Any]]:
    yield from (each for each in value if isinstance(each, Mapping)) if isinstance(value, list) else ()
