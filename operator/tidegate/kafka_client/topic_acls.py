"""The ACLs about writing topics (DescribeAcls)."""

from __future__ import annotations

from typing import Final

from kafka.protocol.admin import DescribeAclsRequest

from tidegate.kafka.acls import TopicAcl
from tidegate.kafka.rights import Resource, Right
from tidegate.kafka_client.codes import check
from tidegate.kafka_client.wire import Wire

_SECURITY_DISABLED: Final = 54
_ANY: Final = 1
_TOPIC: Final = 2
"""``ResourceType``"""
_PREFIXED: Final = 4
"""``PatternType``"""
_WRITES: Final = frozenset({2, 4})
"""``AclOperation``: ALL, WRITE"""
_ALLOW: Final = 3
"""``AclPermissionType``"""
_WHAT: Final = "look at the ACLs of topics"


def write_acls(wire: Wire) -> tuple[TopicAcl, ...] | None:
    """Those of all topics; ``None`` where brokers have no authorizer, so that anybody may write. Raises
    ``KafkaFailure``."""
    answer = wire.ask_any(
        lambda: DescribeAclsRequest(
            resource_type_filter=_TOPIC,
            resource_name_filter=None,
            pattern_type_filter=_ANY,
            principal_filter=None,
            host_filter=None,
            operation=_ANY,
            permission_type=_ANY,
        ),
        what=_WHAT,
    )
    if answer.error_code == _SECURITY_DISABLED:
        return None
    check(answer.error_code, _WHAT, Right("Describe", Resource.CLUSTER), said=answer.error_message)
    return tuple(
        TopicAcl(
            name=resource.resource_name,
            prefixed=resource.pattern_type == _PREFIXED,
            principal=acl.principal,
            host=acl.host,
            allows=acl.permission_type == _ALLOW,
        )
        for resource in answer.resources
        for acl in resource.acls
        if acl.operation in _WRITES
    )
