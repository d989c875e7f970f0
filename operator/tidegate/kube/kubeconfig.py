"""Which cluster and which namespace a command is about where it is not told: as kubectl decides it. Without the
Kubernetes client, which takes longer to import than most commands take."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

DEFAULT: Final = "default"
_OF_A_POD: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_LISTS: Final = {"clusters": "cluster", "contexts": "context", "users": "user"}
"""Of a kubeconfig, and what each of their entries has beside its name."""


class Unreadable(Exception):
    """A kubeconfig that can't be read; the message names the file, and quotes nothing of it."""


def is_asked(environment: Mapping[str, str], context: str | None = None) -> bool:
    """Whether a kubeconfig says which cluster it is, and not the pod that this runs in."""
    return bool(context or environment.get("KUBECONFIG") or not environment.get("KUBERNETES_SERVICE_HOST"))


def own_namespace(environment: Mapping[str, str], context: str | None = None, *, of_a_pod: Path = _OF_A_POD) -> str:
    """The namespace of the kubeconfig's context, that of the pod that this runs in, or ``default``.

    ``context``: another one than the current one. Of several files in ``KUBECONFIG`` the first that says something
    counts. What can't be read says nothing: whoever asks the API server next hears of it.
    """
    if not is_asked(environment, context):
        try:
            return of_a_pod.read_text(encoding="utf-8").strip() or DEFAULT
        except OSError:
            return DEFAULT
    found = tuple(_configurations(environment))
    wanted = context or _current(found)
    for configuration in found:
        for each in _entries(configuration.get("contexts")):
            if each.get("name") == wanted and isinstance(each.get("context"), Mapping):
                return str(each["context"].get("namespace") or DEFAULT)
    return DEFAULT


def files(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """In their order; whether they are there or not."""
    named = environment.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    # As the official client does it: a user that there is not stays as it is.
    return tuple(Path(os.path.expanduser(path)) for path in named.split(os.pathsep) if path)  # noqa: PTH111


def current_context(environment: Mapping[str, str]) -> str | None:
    """That of the first file that says one, as for kubectl: the official client would take the last. ``None``: no file
    says one.

    Raises ``Unreadable`` for what the official client fails on in its own ways. A file that is not there is none.
    """
    found: list[Mapping[str, Any]] = []
    for path in files(environment):
        read = _read(path)
        if read is None:
            continue
        for name, member in _LISTS.items():
            if not _is_list_of(member, read.get(name)):
                raise Unreadable(f"{path} is no kubeconfig: {name} has to be a list, each with a name and a {member}")
        found.append(read)
    return _current(found) or None


def _is_list_of(member: str, entries: Any) -> bool:
    return entries is None or (
        isinstance(entries, list)
        and all(
            isinstance(each, Mapping) and "name" in each and isinstance(each.get(member), Mapping | None)
            for each in entries
        )
    )


def _line_of(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    return f" (line {mark.line + 1})" if mark is not None else ""


def _current(found: Sequence[Mapping[str, Any]]) -> str:
    return next((str(c["current-context"]) for c in found if c.get("current-context")), "")


def _configurations(environment: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
    """What can be read of them."""
    for path in files(environment):
        with contextlib.suppress(Unreadable):
            read = _read(path)
            if read is not None:
                yield read


def _read(path: Path) -> Mapping[str, Any] | None:
    """``None``: it is not there. Raises ``Unreadable``."""
    try:
        read = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unreadable(f"{path} can't be read: {error.strerror}") from error
    except (ValueError, yaml.YAMLError) as error:
        # What yaml says quotes the line that it fails on, which may be a token.
        raise Unreadable(f"{path} is no YAML{_line_of(error)}") from error
    if not isinstance(read, Mapping):
        raise Unreadable(f"{path} is no kubeconfig: it is empty, or no mapping")
    return read


def _entries(value: Any) -> Iterator[Mapping[str, Any]]:
    yield from (each for each in value if isinstance(each, Mapping)) if isinstance(value, list) else ()
