"""``OffsetReset``: one reset of one group or of a fleet, which runs once, as a ``Job`` does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from pydantic import StrictBool

from tidegate.resources.base import InvalidResource, Problem, SharedConnectionRef, SpecModel, StatusModel, parse_spec
from tidegate.resources.conditions import Conditions
from tidegate.resources.dead_letter import MOST_COPIED, DeadLetterSpec
from tidegate.resources.fields import GroupId, GroupPatterns, TopicPatterns
from tidegate.resources.replay import Then, UntilSpec
from tidegate.resources.reset import OF_ONE_GROUP, Engine, ResetOptions, ResetPhase, RunStatus
from tidegate.resources.rules import Rule, cel_matches, not_new, rule
from tidegate.resources.spark import SparkSpec
from tidegate.resources.targets import LONGEST_RUN_ID, RUN_ID, SNAPSHOT_IS_GONE

_NAME_MESSAGE: Final = (
    "must have at most 63 lower-case letters, digits and '-', and begin and end with a letter or digit: choose another "
    "name, or use generateName"
)
_OTHER_MESSAGE: Final = "must name another OffsetReset, not this one"


class _Groups(SpecModel):
    connection_ref: SharedConnectionRef
    """The KafkaConnection through which the group is reached."""

    group: GroupId | None = None
    """The id of the consumer group. Set either this field or groups."""

    groups: GroupPatterns | None = None
    """Instead of group, a fleet: the groups to reset, at most 1,000, as names or patterns with '*'. They are looked up
    when the plan is made."""

    topics: TopicPatterns | None = None
    """The topics to reset, as names or patterns with '*'. Without this field, the topics that the group subscribes
    to."""


class OffsetResetSpec(ResetOptions, _Groups):
    """What is reset, and to which target. Once the reset has begun, only suspend and ttlAfterFinished can be
    changed."""

    spark: SparkSpec | None = None
    """How the Spark application of this reset runs. The chart's defaults apply to fields that are absent."""

    suspend: StrictBool = False
    """If true, the reset does not begin, and an approved plan is not applied. This does not stop a reset that is
    already changing offsets: delete the resource to roll it back."""

    until: UntilSpec | None = None
    """Where the replay ends, and where the group continues after it. Every consumer that owns a partition of the replay
    needs Tidegate's agent. Without this field, the group reads from the target to the end of the log and continues
    there."""

    dead_letter: DeadLetterSpec | None = None
    """Copies the records that the group skips to a dead-letter topic. The copies and the skip are one transaction:
    either both happen or neither does. This is for resets that skip at most 10 offsets. A record that can't be copied
    is not skipped."""

    @rule(
        "has(self.group) != has(self.groups)",
        "must have exactly one of group, for one group, and groups, for a fleet: keep one",
    )
    def _one_group_or_a_fleet(self) -> bool:
        return (self.group is None) != (self.groups is None)

    @rule(
        "!has(self.group) || !has(self.to.group) || self.to.group != self.group",
        "to.group must name another group, not the one that is reset",
    )
    def _target_is_another_group(self) -> bool:
        return self.group is None or self.to.group != self.group

    @rule(
        "has(self.groups) || !has(self.failurePolicy)",
        "failurePolicy is for a fleet: remove it, or use groups",
    )
    def _failure_policy_is_of_a_fleet(self) -> bool:
        return self.groups is not None or self.failure_policy is None

    @rule(
        "has(self.groups) || !has(self.rollout)",
        "rollout is for a fleet: remove it, or use groups",
    )
    def _rollout_is_of_a_fleet(self) -> bool:
        return self.groups is not None or self.rollout is None

    @rule(
        "!has(self.groups) || (!has(self.to.cluster) && !has(self.to.configMap) && !has(self.to.backup) "
        "&& !has(self.evidence))",
        "to.cluster, configMap, backup and evidence are for one group: use another target, or one OffsetReset with "
        "group for each group",
    )
    def _fleet_has_a_target_for_all(self) -> bool:
        return self.groups is None or (self.to.kind not in OF_ONE_GROUP and self.evidence is None)

    @rule(
        "!has(self.until) || (has(self.group) && self.engine != 'Spark' && !has(self.spark) && !has(self.to.record) "
        "&& !has(self.to.cluster) && !has(self.to.backup) && !has(self.to.undo))",
        "until is for one group, and for a reset that the operator carries out: remove it, or use group, engine Auto "
        "or Direct, no spark, and a target other than record, cluster, backup and undo",
    )
    def _replay_is_of_one_group(self) -> bool:
        if self.until is None:
            return True
        by_spark = self.engine is Engine.SPARK or self.spark is not None or self.to.kind.needs_spark
        return self.group is not None and not by_spark and self.to.undo is None

    @rule(
        "!has(self.deadLetter) || (has(self.group) && has(self.partitions) && self.partitions.size() == 1 "
        "&& self.engine != 'Spark' && !has(self.spark) && !has(self.until) && (has(self.to.offset) "
        f"|| (has(self.to.shiftBy) && self.to.shiftBy > 0 && self.to.shiftBy <= {MOST_COPIED})))",
        "deadLetter is for a reset that skips a few records of one topic, and that the operator carries out: remove "
        "it, or use group, one entry of partitions, target offset or a shiftBy from 1 to 10, engine Auto or Direct, "
        "and neither spark nor until",
    )
    def _few_records_are_copied(self) -> bool:
        if self.dead_letter is None:
            return True
        by_spark = self.engine is Engine.SPARK or self.spark is not None
        one_topic = self.group is not None and self.partitions is not None and len(self.partitions) == 1
        few = self.to.offset is not None or (self.to.shift_by is not None and 0 < self.to.shift_by <= MOST_COPIED)
        return one_topic and few and not by_spark and self.until is None

    @rule(
        "!has(self.deadLetter) || !has(self.partitions) || "
        "self.partitions.all(each, each.topic != self.deadLetter.topic)",
        "deadLetter.topic must not be the topic that is reset",
    )
    def _dead_letters_go_elsewhere(self) -> bool:
        if self.dead_letter is None or self.partitions is None:
            return True
        return all(each.topic != self.dead_letter.topic for each in self.partitions)

    @rule(
        "!has(self.until) || self.until.then != 'Pause' || !has(self.ttlAfterFinished)",
        "until.then: Pause keeps partitions paused for as long as the OffsetReset exists: remove ttlAfterFinished",
    )
    def _stays_while_it_pauses(self) -> bool:
        return self.until is None or self.until.then is not Then.PAUSE or self.ttl_after_finished is None

    @property
    def dead_letter_topic(self) -> str:
        """Where skipped records are copied to; empty: nowhere."""
        return self.dead_letter.topic if self.dead_letter is not None else ""

    @property
    def only_group(self) -> str:
        """``group``. Raises ``ValueError`` for a fleet."""
        if self.group is None:
            raise ValueError("a fleet has no group of its own")
        return self.group

    @property
    def group_patterns(self) -> tuple[str, ...]:
        """The groups that it is about: the name of one, or a fleet's patterns."""
        return self.groups if self.groups is not None else (self.only_group,)


def parse_offset_reset(body: Mapping[str, Any]) -> OffsetResetSpec:
    """The spec of an ``OffsetReset``.

    Raises :class:`InvalidResource`, also for a name that is no id of a run, and for one that the reset itself undoes.
    """
    spec, name = parse_spec(OffsetResetSpec, body), str(body["metadata"]["name"])
    if len(name) > LONGEST_RUN_ID or re.fullmatch(RUN_ID, name) is None:
        raise InvalidResource((Problem("metadata.name", _NAME_MESSAGE),))
    if spec.to.undo == name:
        raise InvalidResource((Problem("spec.to.undo", _OTHER_MESSAGE),))
    return spec


class _Phase(StatusModel):
    phase: ResetPhase | None = None
    """The phase of the reset. Succeeded, Failed and RolledBack are final. After Failed and RolledBack, every committed
    offset is as it was before the run; in a fleet whose failurePolicy is Isolate, this holds for the groups that
    failed."""


class OffsetResetStatus(RunStatus, _Phase):
    """The state of the reset, and how it ended."""

    result_digest: str | None = None
    """The SHA-256 digest, in hex, of the request, the plan and the result in the ConfigMap, once the reset has ended.
    An undo accepts only a ConfigMap with this digest."""

    conditions: Conditions = ()
    """Ready is True when the reset has succeeded. Reconciling and Stalled are present while they are true. Complete is
    True once the reset has succeeded. Failed is True once it has failed or was rolled back. ReadFromTarget says whether
    the consumers were seen to read from the targets."""


def _unchanged() -> str:
    """In CEL, whether all that may not be changed once the reset has begun is as it was."""
    same = []
    for field in OffsetResetSpec.model_fields.values():
        name, old, new = field.alias, f"oldSelf.spec.{field.alias}", f"self.spec.{field.alias}"
        if name in ("suspend", "ttlAfterFinished"):
            continue
        # A field without a default may be absent, of which CEL can only ask.
        may_be_absent = not field.is_required() and field.default is None
        same.append(
            f"(has({new}) ? has({old}) && {new} == {old} : !has({old}))" if may_be_absent else f"{new} == {old}"
        )
    return " && ".join(same)


WHOLE_OBJECT: Final = (
    Rule(
        f"self.metadata.name.size() <= {LONGEST_RUN_ID} && {cel_matches('self.metadata.name', RUN_ID)}",
        f"metadata.name {_NAME_MESSAGE}",
    ),
    Rule(
        "!has(self.spec.to.undo) || self.spec.to.undo != self.metadata.name",
        f"spec.to.undo {_OTHER_MESSAGE}",
    ),
    Rule(
        "!has(oldSelf.status) || (!has(oldSelf.status.startedAt) && !has(oldSelf.status.finishedAt)) "
        f"|| ({_unchanged()})",
        "spec is immutable once the reset has begun, except suspend and ttlAfterFinished: create another OffsetReset",
    ),
    *not_new("has(self.spec.to.snapshot)", f"spec.to.snapshot {SNAPSHOT_IS_GONE}"),
)
"""Rules about the name, and about the spec and the status together."""
