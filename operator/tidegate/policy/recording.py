"""In whose name a policy's discovery and retention change offsets, for the audit log."""

from __future__ import annotations

from tidegate.audit.records import Action, Actor, Attribution, AuditTopic
from tidegate.kube.ports import POLICIES


def attribution_of(policy: str, topic: AuditTopic | None, action: Action) -> Attribution | None:
    """``policy``: namespace and name with a ``/`` between them. ``None`` where nothing is recorded."""
    namespace, _, name = policy.rpartition("/")
    return None if topic is None else Attribution(topic, Actor(POLICIES.kind, name, namespace), action=action)
