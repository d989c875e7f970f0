"""``tidegate acls``: the permissions that the operator, its jobs and consumers need in Kafka, to be granted."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tidegate.cli.errors import CommandFailed, Parser
from tidegate.cli.reaching import add_kubernetes, with_namespace
from tidegate.cli.screen import Screen
from tidegate.clock import SystemClock
from tidegate.connection.permissions import scope_in
from tidegate.kafka.connection import acks_topic
from tidegate.kafka.needed_rights import Need, Role, Scope, needs_of, to_grant_by_name, too_wide
from tidegate.kafka.rights import Resource, Right
from tidegate.kube.api import NoCluster, default_api_client
from tidegate.kube.client import KubeClient
from tidegate.kube.ports import CONNECTIONS, KubeFailure, NotFound, Object
from tidegate.resources.base import InvalidResource, parse_spec
from tidegate.resources.connection import AllowSpec, KafkaConnectionSpec

_PRINCIPALS: Final = {Role.OPERATOR: "User:tidegate", Role.JOB: "User:tidegate", Role.CONSUMER: "User:CONSUMER"}

_STRIMZI: Final = {
    Resource.TOPIC: "topic",
    Resource.GROUP: "group",
    Resource.TRANSACTIONAL_ID: "transactionalId",
    Resource.CLUSTER: "cluster",
}


def acls_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tidegate acls",
        description="Print the permissions that a KafkaConnection's principals need in Kafka, for the groups and "
        "topics that it allows.",
        allow_abbrev=False,
    )
    parser.add_argument("connection", help="the KafkaConnection's name")
    add_kubernetes(parser, of="of the KafkaConnection")
    parser.add_argument(
        "--filename", "-f", type=Path, help="read the KafkaConnection from a YAML file, without asking a cluster"
    )
    parser.add_argument(
        "--for",
        dest="role",
        choices=[role.value for role in Role],
        default=Role.OPERATOR.value,
        help="whose permissions to print: those of the operator, whose jobs use the same principal (default), "
        "of a job alone, or of a consumer with the agent",
    )
    parser.add_argument(
        "--principal", help="the principal in Kafka, such as User:tidegate (default) or User:CN=tidegate"
    )
    parser.add_argument(
        "--minimal", action="store_true", help="leave out permissions that only some installations need"
    )
    parser.add_output(
        "commands", "strimzi", says="kafka-acls commands (default), or a KafkaUser's spec.authorization for Strimzi"
    )
    return parser


def run_acls(arguments: Sequence[str], screen: Screen) -> int:
    """0, or 1 where there is no such connection. Raises ``UsageError``."""
    options = with_namespace(acls_parser().parse_args(list(arguments)))
    try:
        spec = parse_spec(KafkaConnectionSpec, _connection(options))
    except (CommandFailed, KubeFailure, NoCluster, InvalidResource) as failure:
        screen.note(f"tidegate acls: {failure}")
        return 1
    scope = _scope(spec)
    role = Role(options.role)
    needs = [need for need in needs_of(role, scope) if not (options.minimal and need.unless)]
    if options.output == "strimzi":
        screen.show(yaml.safe_dump({"authorization": {"type": "simple", "acls": _strimzi(needs)}}, sort_keys=False))
    else:
        screen.show("".join(commands(needs, options.principal or _PRINCIPALS[role])))
    if role is not Role.CONSUMER and too_wide(scope):
        screen.note(
            f"Kafka's ACLs have no patterns such as {', '.join(too_wide(scope))}, so these permissions "
            "cover all names that begin in the same way. That is more than the connection allows."
        )
    if role is Role.OPERATOR and to_grant_by_name(scope):
        screen.note(
            f"Kafka's ACLs have no patterns such as {', '.join(to_grant_by_name(scope))}, so grant Write on "
            "each dead-letter topic by its name, and not on all topics."
        )
    return 0


def commands(needs: Sequence[Need], principal: str) -> list[str]:
    """A line each, with a comment before those that can be left out, and why not."""
    lines = []
    for need in needs:
        why = need.why if not need.unless else f"{need.why}; not needed if {need.unless}"
        lines.append(f"# {why}\nkafka-acls --add --allow-principal {shlex.quote(principal)} {need.right.option}\n")
    return lines


def _strimzi(needs: Sequence[Need]) -> list[dict[str, Any]]:
    """``KafkaUser.spec.authorization.acls``: the operations of one resource together."""
    operations: dict[tuple[Resource, str, bool], list[str]] = {}
    for need in needs:
        right = need.right
        operations.setdefault((right.resource, right.name, right.prefixed), []).append(right.operation)
    return [
        {"resource": _resource(Right("", resource, name, prefixed)), "operations": names}
        for (resource, name, prefixed), names in operations.items()
    ]


def _resource(right: Right) -> dict[str, str]:
    if right.resource is Resource.CLUSTER:
        return {"type": "cluster"}
    pattern = "prefix" if right.prefixed else "literal"
    return {"type": _STRIMZI[right.resource], "name": right.name, "patternType": pattern}


def _scope(spec: KafkaConnectionSpec) -> Scope:
    control = spec.control_topic
    audit = spec.audit.topic if spec.audit is not None else ""
    return scope_in(control.name, control.ack_topic or acks_topic(control.name), spec.allow or AllowSpec(), audit)


def _connection(options: argparse.Namespace) -> Object:
    if options.filename is not None:
        return _from_file(options.filename, options.connection)
    kube = KubeClient(default_api_client(options.context), SystemClock(), [options.namespace])
    try:
        return kube.get(CONNECTIONS, options.namespace, options.connection)
    except NotFound:
        where = f"namespace {options.namespace}"
        raise CommandFailed(
            f"there is no KafkaConnection {options.connection} in {where}: check the name, or give another --namespace"
        ) from None


def _from_file(path: Path, name: str) -> Object:
    try:
        documents = [d for d in yaml.safe_load_all(path.read_text(encoding="utf-8")) if isinstance(d, Mapping)]
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise CommandFailed(f"{path} cannot be read: {error}") from error
    connections = [d for d in documents if d.get("kind") == CONNECTIONS.kind]
    found = [d for d in connections if isinstance(d.get("metadata"), Mapping) and d["metadata"].get("name") == name]
    if not found:
        raise CommandFailed(f"{path} has no KafkaConnection {name}")
    return found[0]
