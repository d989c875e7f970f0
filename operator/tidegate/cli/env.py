"""``tidegate env``: what a policy's consumers have to find in their environment, for a shell or a pod template."""

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
from tidegate.inject.environment import AgentTopics, NamedPolicy, agent_topics, environment_of, unexpanded
from tidegate.kube.api import NoCluster, default_api_client
from tidegate.kube.client import KubeClient
from tidegate.kube.ports import CONNECTIONS, POLICIES, KubeFailure, NotFound, Object, connection_named, name_of
from tidegate.resources.base import InvalidResource, parse_spec
from tidegate.resources.connection import ControlTopicSpec, KafkaConnectionSpec
from tidegate.resources.features import ConsumerFormat
from tidegate.resources.policy import OffsetResetPolicySpec

_DEFAULT_TOPICS: Final = AgentTopics(ControlTopicSpec().name)


def env_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tidegate env",
        description="Print the environment that an OffsetResetPolicy gives to its consumers.",
        allow_abbrev=False,
    )
    parser.add_argument("policy", help="the policy's name")
    add_kubernetes(parser, of="of the policy")
    parser.add_argument(
        "--filename",
        "-f",
        type=Path,
        help="read the policy and its connection from a YAML file, without asking a cluster",
    )
    parser.add_output("shell", "yaml", says="NAME=value lines (default), or the env list of a container")
    parser.add_argument(
        "--format",
        type=str.lower,
        choices=[wanted.value.lower() for wanted in ConsumerFormat],
        help="in which format to print the settings (default: the policy's spec.consumers.format)",
    )
    return parser


def run_env(arguments: Sequence[str], screen: Screen) -> int:
    """0, or 1 where there is no such policy. Raises ``UsageError``."""
    options = with_namespace(env_parser().parse_args(list(arguments)))
    try:
        if options.filename is not None:
            policy, connection = _from_file(options.filename, options.policy)
        else:
            policy, connection = _from_cluster(options)
        named = _named(policy, connection)
    except (CommandFailed, KubeFailure, NoCluster, InvalidResource) as failure:
        screen.note(f"tidegate env: {failure}")
        return 1
    environment = environment_of(named, _format(options.format))
    if options.output == "yaml":
        rows = [{"name": name, "value": unexpanded(value)} for name, value in environment.items()]
        screen.show(yaml.safe_dump(rows, sort_keys=False))
    else:
        screen.show("".join(f"{name}={shlex.quote(value)}\n" for name, value in environment.items()))
    if connection is None:
        screen.note(
            f"{options.filename} has no KafkaConnection {named.spec.connection_ref.name}, so the names of its topics "
            "are the default ones: add it, unless it has no spec.controlTopic"
        )
    if named.spec.consumers is None:
        screen.note("The policy has no spec.consumers, so nothing injects these variables automatically.")
    return 0


def _format(text: str | None) -> ConsumerFormat | None:
    return next((wanted for wanted in ConsumerFormat if wanted.value.lower() == text), None)


def _named(policy: Object, connection: Object | None) -> NamedPolicy:
    spec = parse_spec(OffsetResetPolicySpec, policy)
    if spec.group is None:
        raise CommandFailed(
            f"OffsetResetPolicy {name_of(policy)} is for many groups, but this command prints the "
            "environment of one group's consumers: name a policy with spec.group"
        )
    topics = _DEFAULT_TOPICS if connection is None else agent_topics(parse_spec(KafkaConnectionSpec, connection))
    return NamedPolicy(name_of(policy), spec, topics, ("", ""))


def _from_cluster(options: argparse.Namespace) -> tuple[Object, Object | None]:
    namespace, name = options.namespace, options.policy
    kube = KubeClient(default_api_client(options.context), SystemClock(), [namespace])
    try:
        policy = kube.get(POLICIES, namespace, name)
    except NotFound:
        raise CommandFailed(
            f"there is no OffsetResetPolicy {name} in namespace {namespace}: check the name, or give another "
            "--namespace"
        ) from None
    of, connection = connection_named(policy)
    try:
        return policy, kube.get(CONNECTIONS, of, connection)
    except NotFound:
        raise CommandFailed(
            f"the policy refers to KafkaConnection {connection}, which does not exist in namespace {of}"
        ) from None


def _from_file(path: Path, name: str) -> tuple[Object, Object | None]:
    try:
        documents = [d for d in yaml.safe_load_all(path.read_text(encoding="utf-8")) if isinstance(d, Mapping)]
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise CommandFailed(f"{path} cannot be read: {error}") from error
    policies = [d for d in documents if d.get("kind") == POLICIES.kind and _member(d, "metadata", "name") == name]
    if not policies:
        raise CommandFailed(f"{path} has no OffsetResetPolicy {name}")
    policy = policies[0]
    wanted = _member(policy, "spec", "connectionRef", "name")
    # What is in a file may leave out its namespace.
    there = _member(policy, "spec", "connectionRef", "namespace") or _member(policy, "metadata", "namespace")
    connections = (
        d
        for d in documents
        if d.get("kind") == CONNECTIONS.kind
        and _member(d, "metadata", "name") == wanted
        and (there is None or _member(d, "metadata", "namespace") in (None, there))
    )
    return policy, next(connections, None)


def _member(document: Mapping[str, Any], *path: str) -> Any:
    """``None`` also where something on the way is no mapping: nobody has judged what is in a file."""
    found: Any = document
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found
