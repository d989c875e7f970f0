"""Who may write topics by the brokers' ACLs, as ``StandardAuthorizer`` reads them (KIP-290). Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

ANYBODY = "User:*"


@dataclass(frozen=True, slots=True)
class TopicAcl:
    """An ACL about writing. ``prefixed``: of all topics whose names begin with ``name``; otherwise ``*`` is any."""

    name: str
    prefixed: bool
    principal: str
    host: str
    allows: bool

    def covers(self, topic: str) -> bool:
        return topic.startswith(self.name) if self.prefixed else self.name in (topic, "*")


def writers_of(topic: str, acls: Collection[TopicAcl]) -> frozenset[str]:
    """The principals that are let write it from anywhere. Super users may write whatever the ACLs say. Who is denied it
    from some hosts only is one of them."""
    found = [acl for acl in acls if acl.covers(topic)]
    denied = {acl.principal for acl in found if not acl.allows and acl.host == "*"}
    if ANYBODY in denied:
        return frozenset()
    return frozenset(acl.principal for acl in found if acl.allows) - denied
