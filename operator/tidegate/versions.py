"""Which versions of stored documents this code knows: one rule for all that another version may read (ADR 38). Pure.

What is stored says its version; what says none is of version 1, as everything was that was written before versions were
told. A reader that meets a newer one refuses it by :class:`NewerVersion` and leaves it as it is: it is neither
malformed nor absent, and is not overwritten, deleted or taken over. Members that a reader does not know, in a version
that it knows, are ignored; so whatever an earlier reader must not ignore raises the version of the document.

``docs/reference/stored-documents.md`` has the list for people.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

VERSION: Final = "version"
"""The member of a JSON object, and the key of a ConfigMap's data, that says it."""

WRITTEN_BY_NEWER_VERSION: Final = "WrittenByNewerVersion"
"""The reason by which conditions and Events tell of a refusal."""

_FIRST: Final = 1
_MOST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Stored:
    """A kind of what is stored. ``says``: for messages, with its article; ``version``: the newest one that is known,
    which is the one that is written."""

    name: str
    says: str
    version: int = _FIRST


RUN: Final = Stored("run", "a run's document")
POLICY_MEMORY: Final = Stored("policy-memory", "the memory of a policy")
LAST_OFFSETS: Final = Stored("last-offsets", "a snapshot of last known offsets")
BACKUP_ORDER: Final = Stored("backup-order", "a backup's order")
BACKUP_MANIFEST: Final = Stored("backup-manifest", "a backup's manifest")
MIRROR_ORDER: Final = Stored("mirror-order", "the order of a mirror's job")
MIRROR_REPORT: Final = Stored("mirror-report", "the report of a mirror's task")
LOCAL_LAUNCH: Final = Stored("local-launch", "the note of a job's process")
HOLD: Final = Stored("control-hold", "a hold")
LIMIT: Final = Stored("control-limit", "a limit")
PARTITION: Final = Stored("control-partition", "a record of a partition")
CLAIM: Final = Stored("control-claim", "a claim")
RUN_RECORD: Final = Stored("control-run", "a record of a run")
ACK: Final = Stored("ack", "an ack")
AUDIT: Final = Stored("audit-change", "a record of the audit log")

ALL: Final = (
    RUN,
    POLICY_MEMORY,
    LAST_OFFSETS,
    BACKUP_ORDER,
    BACKUP_MANIFEST,
    MIRROR_ORDER,
    MIRROR_REPORT,
    LOCAL_LAUNCH,
    HOLD,
    LIMIT,
    PARTITION,
    CLAIM,
    RUN_RECORD,
    ACK,
    AUDIT,
)
"""Whatever is stored and is not listed here is not read by another process, or has the version of an API."""


class NewerVersion(Exception):
    """A document of a version that is not known yet. Not a ``ValueError``: it is not malformed.

    The message says what to do.
    """

    def __init__(self, kind: Stored, found: int, where: str) -> None:
        super().__init__(
            f"{where} is {kind.says} of version {found}, and this version of Tidegate knows versions up to "
            f"{kind.version}: a newer version of Tidegate has written it. It is left as it is: run that version again"
        )
        self.kind: Final = kind
        self.found: Final = found


def said(kind: Stored) -> str:
    """What a ConfigMap's data says under ``VERSION``."""
    return str(kind.version)


def check(kind: Stored, found: object, where: str) -> int:
    """The version that a document says; ``None`` where it says none. ``where``: the document, for the message.

    Raises ``NewerVersion``, and ``ValueError`` for what is no version.
    """
    version = number_of(found)
    if version > kind.version:
        raise NewerVersion(kind, version, where)
    return version


def number_of(found: object) -> int:
    """A version as JSON or a ConfigMap's data says it. Raises ``ValueError`` for what is none."""
    if found is None:
        return _FIRST
    if isinstance(found, str) and re.fullmatch(r"[1-9][0-9]{0,9}", found):
        found = int(found)
    if type(found) is not int or not _FIRST <= found <= _MOST:
        raise ValueError(f"its version must be a whole number from 1 on, not {str(found)[:40]!r}")
    return found


# --- digests --------------------------------------------------------------------------------------------------------

_DIGEST: Final = re.compile(r"v([1-9][0-9]{0,9}):(.+)")


def digest_version(digest: str) -> int:
    """The version of the run's document that a digest is of: ``v2:<digits>``, and 1 for digits alone.

    The operator keeps the digest where nobody else writes. So it is the digest that tells a document which a newer
    version has written from one to which somebody else has given a number.
    """
    found = _DIGEST.fullmatch(digest)
    return int(found[1]) if found is not None else _FIRST
