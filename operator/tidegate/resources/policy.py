"""``OffsetResetPolicy``: how groups' offsets are kept, and a template of the reset to run, of one group or of many."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from tidegate.resources.base import SharedConnectionRef, SpecModel, StatusModel
from tidegate.resources.conditions import Conditions
from tidegate.resources.discovery import DiscoverySpec, DiscoveryStatus
from tidegate.resources.features import ConsumersSpec, InjectionStatus, LatestSpec, RetentionSpec, RetentionStatus
from tidegate.resources.fields import Excluded, GroupId, GroupPatterns, TopicPatterns
from tidegate.resources.many_groups import ManyGroupsStatus, Overlaps
from tidegate.resources.reset import OF_ONE_GROUP, EarlierReset, RequestedReset, ResetSpec
from tidegate.resources.rules import Rule, Transition, gone, immutable, not_new, rule
from tidegate.resources.spark import SparkSpec
from tidegate.resources.stuck_records import StuckRecordsSpec, StuckRecordsStatus
from tidegate.resources.targets import LONGEST_RUN_ID, SNAPSHOT_IS_GONE

_IMMUTABLE_UNDER_ONE_ID: Final = Transition(
    "self.id != oldSelf.id || self == oldSelf",
    "is immutable while its id stays the same, because it runs once: give reset.id a new value to run another reset",
    lambda old, new: old["id"] != new["id"] or old == new,
)

_SNAPSHOTS_ARE_GONE: Final = (
    "is no longer part of a policy: make an OffsetBackup with this connectionRef, schedule, groups and keep, with to "
    "as its storage, and remove this field"
)


class OffsetResetPolicySpec(SpecModel):
    """How the group's offsets are managed, and the reset to run."""

    connection_ref: SharedConnectionRef
    """The KafkaConnection through which the group is reached."""

    group: Annotated[GroupId | None, immutable("make another OffsetResetPolicy for the other group")] = None
    """The id of the consumer group. It cannot be changed. Set either this field or groups."""

    groups: Annotated[
        GroupPatterns | None,
        immutable("make another OffsetResetPolicy for other groups"),
    ] = None
    """Instead of group, many groups, as names or patterns with '*'. Groups that appear later are included. Apart from
    the reset, the policy applies to each of these groups for which no other policy is more specific. A reset covers at
    most 1,000 groups, which are looked up when the plan is made. This field cannot be changed."""

    exclude: Excluded | None = None
    """Groups to leave out although they match groups, as names or patterns with '*'. It cannot be used with a reset."""

    topics: TopicPatterns | None = None
    """The topics that this policy covers, as names or patterns with '*'. Without this field, the topics that the group
    subscribes to."""

    latest: LatestSpec | None = None
    """Makes auto.offset.reset=latest safe on new partitions (KIP-1327): consumers that start without a committed offset
    begin at the start of partitions that are no older than maxAge."""

    discovery: DiscoverySpec | None = None
    """How new partitions are found, and where the group begins to read them (FLIP-288)."""

    consumers: ConsumersSpec | None = None
    """The pods into which this policy's settings are injected."""

    retention: RetentionSpec | None = None
    """How the committed offsets of a group without members are kept longer than the brokers' retention of offsets
    (KIP-211)."""

    stuck_records: StuckRecordsSpec | None = None
    """Finds and reports records that the group's consumers do not get past, such as poison records. It can also prepare
    a reset that skips them. Nothing is skipped unless somebody approves it."""

    snapshots: Annotated[dict[str, Any] | None, gone(_SNAPSHOTS_ARE_GONE)] = None
    """Not used any more, and refused: create an OffsetBackup instead."""

    reset: Annotated[ResetSpec | None, _IMMUTABLE_UNDER_ONE_ID] = None
    """The reset to run, once for each id: the operator creates an OffsetReset for it, named after the policy and the
    id. A new id runs a new reset; while the id stays the same, no other field of the reset can be changed. When the id
    is changed or the reset is removed, an OffsetReset of this policy that has not ended is deleted, which rolls it
    back. One that has ended stays."""

    spark: SparkSpec | None = None
    """How Spark applications of this policy run. The chart's defaults apply to fields that are absent."""

    transitions: ClassVar[tuple[Transition, ...]] = (
        Transition(
            "has(self.groups) == has(oldSelf.groups)",
            "group and groups cannot replace each other: make another OffsetResetPolicy",
            lambda old, new: ("groups" in old) == ("groups" in new),
        ),
    )

    @property
    def only_group(self) -> str:
        """``group``. Raises ``ValueError`` for a policy with ``groups``."""
        if self.group is None:
            raise ValueError("a policy for many groups has none of its own")
        return self.group

    @property
    def group_patterns(self) -> tuple[str, ...]:
        """The groups that it is about: the name of one, or the patterns of many."""
        return self.groups if self.groups is not None else (self.only_group,)

    @property
    def keeps_something(self) -> bool:
        """Whether it asks for more than a reset."""
        parts = (self.latest, self.discovery, self.consumers, self.retention, self.stuck_records)
        return any(part is not None for part in parts)

    @rule(
        "has(self.group) != has(self.groups)",
        "must have exactly one of group, for one group, and groups, for a fleet: keep one",
    )
    def _one_group_or_a_fleet(self) -> bool:
        return (self.group is None) != (self.groups is None)

    @rule(
        "!has(self.group) || !has(self.reset) || !has(self.reset.to.group) || self.reset.to.group != self.group",
        "reset.to.group must name another group, not the one that is reset",
    )
    def _target_is_another_group(self) -> bool:
        return self.group is None or self.reset is None or self.reset.to.group != self.group

    @rule(
        "has(self.groups) || !has(self.reset) || !has(self.reset.failurePolicy)",
        "reset.failurePolicy is for a fleet: remove it, or use groups",
    )
    def _failure_policy_is_of_a_fleet(self) -> bool:
        return self.groups is not None or self.reset is None or self.reset.failure_policy is None

    @rule(
        "has(self.groups) || !has(self.reset) || !has(self.reset.rollout)",
        "reset.rollout is for a fleet: remove it, or use groups",
    )
    def _rollout_is_of_a_fleet(self) -> bool:
        return self.groups is not None or self.reset is None or self.reset.rollout is None

    @rule(
        "!has(self.groups) || !has(self.consumers)",
        "consumers is for one group: use it in a policy with group",
    )
    def _consumers_are_of_one_group(self) -> bool:
        return self.groups is None or self.consumers is None

    @rule(
        "!has(self.exclude) || has(self.groups)",
        "exclude leaves groups out of groups: remove it, or use groups instead of group",
    )
    def _excluded_of_many(self) -> bool:
        return self.exclude is None or self.groups is not None

    @rule(
        "!has(self.exclude) || !has(self.reset)",
        "exclude does not apply to a reset: put the reset into a policy of its own, with the groups that it is for",
    )
    def _nothing_is_excluded_from_a_reset(self) -> bool:
        return self.exclude is None or self.reset is None

    @rule(
        "!has(self.groups) || !has(self.reset) || (!has(self.reset.to.cluster) && !has(self.reset.to.configMap) "
        "&& !has(self.reset.to.backup) && !has(self.reset.evidence))",
        "reset.to.cluster, configMap, backup and reset.evidence are for one group: use another target, or one policy "
        "with group for each group",
    )
    def _fleet_has_a_target_for_all(self) -> bool:
        reset = self.reset
        if self.groups is None or reset is None:
            return True
        return reset.to.kind not in OF_ONE_GROUP and reset.evidence is None


_NAMES_TOO_LONG: Final = (
    f"the OffsetReset would be named after the policy and this id, as <policy>-<id>, which may have at most "
    f"{LONGEST_RUN_ID} characters: shorten one of the two"
)
_NAME_UNFIT: Final = (
    "the OffsetReset would be named after the policy, so the policy's name may have only lower-case letters, digits "
    "and '-': put the reset into a policy with another name, or create an OffsetReset"
)


def reset_name_problem(policy: str, reset_id: str) -> str | None:
    """What is wrong with ``<policy>-<id>`` as the name of an OffsetReset, if anything is."""
    if "." in policy:
        return _NAME_UNFIT
    return _NAMES_TOO_LONG if len(policy) + 1 + len(reset_id) > LONGEST_RUN_ID else None


WHOLE_OBJECT: Final = (
    Rule("!has(self.spec.reset) || !self.metadata.name.contains('.')", f"spec.reset.id: {_NAME_UNFIT}"),
    Rule(
        f"!has(self.spec.reset) || self.metadata.name.size() + 1 + self.spec.reset.id.size() <= {LONGEST_RUN_ID}",
        f"spec.reset.id: {_NAMES_TOO_LONG}",
    ),
    *not_new("has(self.spec.snapshots)", f"spec.snapshots {_SNAPSHOTS_ARE_GONE}"),
    *not_new("has(self.spec.reset) && has(self.spec.reset.to.snapshot)", f"spec.reset.to.snapshot {SNAPSHOT_IS_GONE}"),
)
"""Rules about the name and the spec together."""


MAX_HISTORY: Final = 10


class PolicyStatus(StatusModel):
    """The state of the group's offsets, and of the reset that is asked for."""

    reset: RequestedReset | None = None
    """The reset that the policy asks for, or asked for last."""

    history: Annotated[tuple[EarlierReset, ...], Field(max_length=MAX_HISTORY)] = ()
    """Resets that an earlier version of Tidegate ran. They do not run again. Nothing is added here any more, because
    the policy's resets are now OffsetResets."""

    discovery: DiscoveryStatus | None = None
    """What the discovery of new partitions has found."""

    retention: RetentionStatus | None = None
    """How long the group's committed offsets are kept."""

    stuck_records: StuckRecordsStatus | None = None
    """Which records the group's consumers do not get past."""

    groups: ManyGroupsStatus | None = None
    """For a policy with groups: how many groups it has, and those that most need attention."""

    overrides: Overlaps | None = None
    """Less specific policies that ask for the same for groups of this policy. This policy applies to those groups."""

    overridden_by: Overlaps | None = None
    """More specific policies that ask for the same for groups of this policy. They apply to those groups."""

    injection: InjectionStatus | None = None
    """How many of the selected pods have the policy's settings."""

    conditions: Conditions = ()
    """Ready is True when the state that this generation asks for is reached. Reconciling and Stalled are present while
    they are true. Reset describes the reset in status.reset; one that has failed leaves the policy Ready. Retained
    describes the group's committed offsets, RecordStuck whether a record holds up its consumers, and Injected the
    consumers' settings. Overridden is present while more specific policies apply to groups of this policy."""
