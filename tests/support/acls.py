"""What the tests' principal may do on a broker with an authorizer."""

from __future__ import annotations

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)


def allow(admin: AdminClient, *rights: tuple[ResourceType, str, AclOperation]) -> None:
    """By either of its names, of password or certificate."""
    bindings = [
        AclBinding(kind, name, ResourcePatternType.LITERAL, principal, "*", operation, AclPermissionType.ALLOW)
        for kind, name, operation in rights
        for principal in ("User:tidegate", "User:CN=tidegate")
    ]
    if bindings:
        for future in admin.create_acls(bindings).values():
            future.result(20)
