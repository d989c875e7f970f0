"""What a KafkaConnection allows to resources of one namespace, its own or another. Pure.

See docs/adr/0036.
"""

from __future__ import annotations

import functools
from typing import Final

from tidegate.kafka.names import narrowed
from tidegate.kube.ports import Object, connection_named, namespace_of
from tidegate.resources.conditions import Refusal
from tidegate.resources.connection import AllowedNamespace, AllowSpec

NO_USABLE_CONNECTION: Final = "NoUsableConnection"

_narrowed = functools.lru_cache(maxsize=4096)(narrowed)


def allowed_from(allow: AllowSpec, own_namespace: str, namespace: str) -> AllowSpec | None:
    """What resources in ``namespace`` may touch through a connection of ``own_namespace``; ``None``: none is for them.

    Claims, Secrets and dead-letter topics are for the connection's own namespace only. Lists may be empty: then nothing
    is allowed.
    """
    entry = next((one for one in allow.namespaces if one.name == namespace), None)
    if entry is None:
        return allow if namespace == own_namespace else None
    return _within(allow, entry, own=namespace == own_namespace)


def nothing(allow: AllowSpec) -> AllowSpec:
    """Of a connection, for those that may not use it (any more)."""
    lists = ("groups", "topics", "claims", "secrets", "dead_letter_topics", "namespaces")
    return allow.model_copy(update=dict.fromkeys(lists, ()))


def _within(allow: AllowSpec, entry: AllowedNamespace, *, own: bool) -> AllowSpec:
    lists: dict[str, object] = {
        "groups": _narrowed(entry.groups, allow.groups),
        "topics": _narrowed(entry.topics, allow.topics),
    }
    return (allow if own else nothing(allow)).model_copy(update=lists)


def is_foreign(body: Object) -> bool:
    """Whether the resource names a connection of another namespace."""
    return connection_named(body)[0] != namespace_of(body)


def not_usable(body: Object) -> str:
    """Why nothing is done for a resource whose connection is not there for it.

    Of another namespace's connection the same is said whatever the reason, so that nobody finds out what is there.
    """
    namespace, name = connection_named(body)
    if not is_foreign(body):
        return f"there is no usable KafkaConnection {name} in this namespace"
    return (
        f"there is no KafkaConnection {name} in namespace {namespace} that namespace {namespace_of(body)} may use: it "
        "is not there, or can't be used now, or its spec.allow.namespaces does not list this namespace"
    )


def refusal(body: Object) -> Refusal:
    """The same, for whatever does not begin because of it."""
    return Refusal(NO_USABLE_CONNECTION, not_usable(body))
