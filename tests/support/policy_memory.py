"""What a policy on an API server remembers of topics, as the status of earlier versions showed it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubernetes.client import ApiException, CoreV1Api

from tidegate.policy.memory import decode, document_name


def remembered_topics(core: CoreV1Api, policy: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Of its group; nothing before the first discovery was written."""
    names = ("topicId", "initial", "settled", "before")
    return [
        {"name": topic, **dict(zip(names, row, strict=False))}
        for document in _documents(core, policy)
        for topic, row in document["topics"].items()
    ]


def remembered_counts(core: CoreV1Api, policy: Mapping[str, Any]) -> list[int]:
    """Of its group: starts committed, began at end, backfilled. The status says the same a moment later."""
    return next((document["counts"] for document in _documents(core, policy)), [0, 0, 0])


def _documents(core: CoreV1Api, policy: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    try:
        name, namespace = document_name(policy, "memory"), policy["metadata"]["namespace"]
        found = core.read_namespaced_config_map(name, namespace)
    except ApiException as error:
        if error.status == 404:
            return []
        raise
    return [parts["discovery"] for parts in decode(found.data).values() if "discovery" in parts]
