"""The register of decoders: each is tried with hostile input, or it is said here why not.

``tests/security/test_decoders.py`` compares it with the source (:mod:`support.fuzzing.found`), so a decoder that is
new, renamed or gone makes it fail until it is written down.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from support.fuzzing import connect, kafka, mirror, resources, stored, values
from support.fuzzing.target import Target

TARGETS: Final[tuple[Target, ...]] = (
    *kafka.TARGETS,
    *connect.TARGETS,
    *mirror.TARGETS,
    *stored.TARGETS,
    *resources.TARGETS,
    *values.TARGETS,
)

_SERVERS_TIME: Final = "a time that the API server itself has written, or has checked by its schema"
_OWN: Final = "what this process has made itself"
_ENVIRONMENT: Final = "the environment that the chart, or the operator for its jobs, has written"
_ERROR: Final = "the API server's own words on an error, for a message only"
_USERS: Final = "what the user has typed in this very command, or a file of theirs"

ELSEWHERE: Final[Mapping[str, str]] = {
    "tidegate.audit.codec:attribution_of": _ENVIRONMENT,
    "tidegate.cli.acls:_from_file": _USERS,
    "tidegate.cli.auditing:_since": _USERS,
    "tidegate.cli.backup_time:at_of": _USERS,
    "tidegate.cli.env:_from_file": _USERS,
    "tidegate.cli.options:parse_options": _USERS,
    "tidegate.cli.options:parse_topic": _USERS,
    "tidegate.cli.planning:as_json": _OWN,
    "tidegate.connection.shards:Shard.has": _OWN,
    "tidegate.inject.rollout:seen_pod": _SERVERS_TIME,
    "tidegate.jobs.application:render": "a template of the chart's",
    "tidegate.jobs.runner_application:_created": _SERVERS_TIME,
    "tidegate.jobs.settings:_Environment.conf": _ENVIRONMENT,
    "tidegate.kafka_client.cluster_requests:_Undecoded.decode": "four bytes of a frame; `topics` has the rest",
    "tidegate.kafka_client.cluster_requests:_Undecoded.parse_header": "passes over the header, reads nothing",
    "tidegate.kafka_client.topic_ids:uuid_of": "what `topic_id_of_bytes` has made",
    "tidegate.kube.answers:is_already_there": _ERROR,
    "tidegate.kube.answers:has_cause": _ERROR,
    "tidegate.kube.answers:message_of": _ERROR,
    "tidegate.kube.kubeconfig:_read": _USERS,
    "tidegate.kube.client:KubeClient.secret": "base64 that the API server has written",
    "tidegate.kube.lease_client:_time": _SERVERS_TIME,
    "tidegate.kube.requests:_lines": "lines of JSON that the API server has written, whatever their texts say",
    "tidegate.kube.uninstall_client:Named.parse": _ENVIRONMENT,
    "tidegate.kube.unreadable:gone_by": _SERVERS_TIME,
    "tidegate.kube.unreadable:with_stalled": "tried by tests/unit/kube; refuses nothing, and writes nothing then",
    "tidegate.kube.webhooks:WebhookClient.secret": "base64 that the API server has written",
    "tidegate.offset_mirror.rows:_age": _SERVERS_TIME,
    "tidegate.offset_reset.approval_choice:approval_of": _SERVERS_TIME,
    "tidegate.offset_reset.passes:ResetPasses._see": _SERVERS_TIME,
    "tidegate.offset_reset.turns:_created": _SERVERS_TIME,
    "tidegate.pause.others:_read": "a status as its CRD allows it; what can't be read is left out (tests/unit/pause)",
    "tidegate.pause.reading:Reader.read": _SERVERS_TIME,
    "tidegate.reset.marker:_run_number": _OWN,
    "tidegate.service.settings:Settings.from_environment": _ENVIRONMENT,
    "tidegate.service.settings:_object": _ENVIRONMENT,
    "tidegate.spark.entry:_read_connection": _USERS,
    "tidegate.spark.entry:_target": _USERS,
    "tidegate.spark.expression:_Tree.parse": "Spark's own: tests/spark, tests/security/test_condition_variables.py",
    "tidegate.spark.plan_steps:PlanJob._snapshot": "rows that the job's other tasks have written",
}
"""Decoders that no hostile input reaches, or that are tried in another way."""


def covered() -> frozenset[str]:
    """The decoders that have a target."""
    return frozenset(name for target in TARGETS for name in target.of)
