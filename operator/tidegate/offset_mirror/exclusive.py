"""Whether somebody else than the mirror may write its copies, as far as the target's ACLs tell. Pure.

Tidegate changes no ACLs: Kafka has none that lets one principal write and no other, and what others were denied would
have to be allowed again after a failover, by whoever can.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidegate.kafka.acls import ANYBODY
from tidegate.kafka.connection import Authentication, AuthenticationType
from tidegate.kafka.errors import KafkaFailure
from tidegate.printable import visible
from tidegate.resources.conditions import ConditionStatus

ONLY_THIS_PRINCIPAL: Final = "OnlyThisPrincipal"
OTHERS_MAY_WRITE: Final = "OthersMayWrite"
NO_AUTHORIZER: Final = "NoAuthorizer"
WRITERS_UNKNOWN: Final = "WritersUnknown"
_NAMED: Final = 3

Writers = Mapping[str, frozenset[str]]
"""By topic, the principals that ACLs let write it."""

Verdict = tuple[ConditionStatus, str, str]
"""Status, reason and message of a condition."""


def own_principal(authentication: Authentication) -> str | None:
    """Under which brokers know the connection, unless they map names; ``None``: they derive it from a certificate or a
    token."""
    names = (AuthenticationType.SCRAM_SHA_256, AuthenticationType.SCRAM_SHA_512, AuthenticationType.PLAIN)
    return f"User:{authentication.username}" if authentication.type in names else None


def judged(found: Writers | KafkaFailure | None, own: str | None) -> Verdict:
    """``found``: of each topic that is copied; ``None``: the brokers have no authorizer."""
    if found is None:
        return (
            ConditionStatus.FALSE,
            NO_AUTHORIZER,
            "the target's brokers have no authorizer: anybody can write to the copies",
        )
    if isinstance(found, KafkaFailure):
        return (
            ConditionStatus.UNKNOWN,
            WRITERS_UNKNOWN,
            f"could not read who may write to the copies: {visible(str(found))}",
        )
    others = {topic: sorted(writers - {own}) for topic, writers in found.items()}
    # Which one is this mirror's is not known: but if there are two, one of them is somebody else.
    least = 1 if own is None else 0
    bad = sorted(topic for topic, names in others.items() if len(names) > least or ANYBODY in names)
    if bad:
        names = others[bad[0]]
        such = ", ".join(map(visible, names[:_NAMED])) + (
            f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        )
        also = "" if own is not None or ANYBODY in names else ", one of which may be this mirror's"
        says = f"ACLs let others write to {len(bad)} of {len(others)} copies, such as {visible(bad[0])}: {such}{also}"
        return ConditionStatus.FALSE, OTHERS_MAY_WRITE, says
    unknown = sorted(topic for topic, writers in found.items() if (own or "") not in writers)
    if own is None:
        says = "this mirror's principal can't be read from its certificate or token"
        return ConditionStatus.UNKNOWN, WRITERS_UNKNOWN, says
    if unknown:
        some = f"{len(unknown)} of {len(others)} copies, such as {visible(unknown[0])}"
        why = "it is a super user, or topics without ACLs are open to everybody"
        says = f"no ACL lets this mirror write to {some}: {why}"
        return ConditionStatus.UNKNOWN, WRITERS_UNKNOWN, says
    says = f"ACLs let only {visible(own)} write to the {len(others)} copies; super users can write to them too"
    return ConditionStatus.TRUE, ONLY_THIS_PRINCIPAL, says
