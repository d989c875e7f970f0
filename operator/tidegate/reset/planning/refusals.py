"""Why there is no plan: every reason, as conditions and the command line name it."""

from __future__ import annotations

from typing import Final

UNSUPPORTED_GROUP: Final = "UnsupportedGroup"

SAME_GROUP: Final = "SameGroup"

SOURCE_WITHOUT_OFFSETS: Final = "SourceGroupWithoutOffsets"

INTERNAL_TOPIC: Final = "InternalTopic"

TOPIC_NOT_ALLOWED: Final = "TopicNotAllowed"

UNKNOWN_TOPIC: Final = "UnknownTopic"

UNKNOWN_PARTITION: Final = "UnknownPartition"

NOTHING_MATCHES: Final = "NothingMatches"

TOPIC_RECREATED: Final = "TopicRecreated"

NO_COMMITTED_OFFSET: Final = "NoCommittedOffset"

NO_MATCHING_RECORD: Final = "NoMatchingRecord"

UNSUPPORTED_BY_BROKERS: Final = "UnsupportedByBrokers"

NEEDS_AGENTS: Final = "NeedsAgents"

NOTHING_TO_REPLAY: Final = "NothingToReplay"

NOT_COPIED: Final = "NotCopied"
"""What would be skipped can't be copied to the dead-letter topic, so it is not skipped."""

BACKUP_NOT_FOUND: Final = "BackupNotFound"

BAD_EXPRESSION: Final = "BadExpression"

BAD_SCHEMA: Final = "BadSchema"

UNDECODABLE_RECORD: Final = "UndecodableRecord"

UNREADABLE_TIME: Final = "UnreadableTime"
"""A record's time is one that Spark has no number for."""


class PlanRefused(Exception):
    """There is no plan for this request; asking again unchanged does not help.

    ``reason`` is PascalCase, for a condition. ``message`` says what is wrong, where, and what to do; no full stop.
    """

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        self.message = message
        super().__init__(f"{reason}: {message}")

    def __reduce__(self) -> tuple[type[PlanRefused], tuple[str, str]]:
        return PlanRefused, (self.reason, self.message)
