"""``tidegate why``: why a group reads, or does not read, in plain sentences."""

from __future__ import annotations

import argparse
import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidegate.cli.errors import Parser, UsageError
from tidegate.cli.reaching import (
    Named,
    add_kafka,
    add_kubernetes,
    add_output,
    dumped,
    kube_client,
    named,
    namespace_of_options,
)
from tidegate.cli.screen import Screen

if TYPE_CHECKING:
    from tidegate.incident.account import Account
    from tidegate.incident.seen import KafkaSeen, Seen, Unseen
    from tidegate.kafka.connection import Connection
    from tidegate.kube.client import KubeClient
    from tidegate.resources.connection import KafkaConnectionSpec

_SOCKET_TIMEOUT = "socket.timeout.ms"
_PATIENCE_MS = "5000"
"""Of one request: whoever asks is in a hurry."""

_TO_BE_READ: Final = "kafka:9092"
"""Servers until the KafkaConnection's are known."""

_NO_SERVERS: Final = (
    "not asked, because no servers are known: give --bootstrap-server, or --connection for the servers of "
    "a KafkaConnection"
)
_UNREAD_SERVERS: Final = (
    "not asked, because its servers are in the KafkaConnection, which was not read: give --bootstrap-server"
)


def why_parser() -> argparse.ArgumentParser:
    """The parser of ``tidegate why``; it raises ``UsageError``."""
    parser = Parser(
        prog="tidegate why",
        description="Say in plain sentences who owns which partitions of a consumer group, how far the group has "
        "read, what is held by whom, and what runs or waits. Changes nothing, and says what it could not "
        "see.",
        allow_abbrev=False,
    )
    parser.add_argument("group", metavar="GROUP", help="the id of the consumer group")
    parser.add_argument(
        "--connection",
        "-c",
        metavar="[NAMESPACE/]NAME",
        help="a KafkaConnection: use its servers and topics unless others are given, and show only resources "
        "of its cluster",
    )
    add_kafka(parser)
    add_kubernetes(parser, of="of the resources", all_namespaces=True)
    parser.add_argument("--no-kubernetes", action="store_true", help="ask Kafka only")
    add_output(parser)
    return parser


def run_why(arguments: Sequence[str], screen: Screen) -> int:
    """0; 1 where neither Kafka nor Kubernetes was reached. Raises ``UsageError``."""
    options = why_parser().parse_args(list(arguments))
    if options.no_kubernetes and options.connection:
        raise UsageError("--connection is read from Kubernetes: leave out either --connection or --no-kubernetes")
    if options.no_kubernetes and not options.bootstrap_server:
        raise UsageError("--no-kubernetes needs --bootstrap-server")

    with ExitStack() as until_seen:
        seen = Look(options, screen, until_seen).seen()

    from tidegate.incident.account import account_of

    account = account_of(seen)
    _show(options, seen, account, screen)
    reached = seen.kafka is not None and seen.kafka.is_reached
    return 0 if reached or seen.kube is not None else 1


def _show(options: argparse.Namespace, seen: Seen, account: Account, screen: Screen) -> None:
    from tidegate.incident.as_json import as_json
    from tidegate.incident.sentences import sections

    told = sections(seen, account)
    if options.output != "text":
        screen.show(dumped(as_json(seen, account, told), options.output))
        return
    if isinstance(screen.out, io.TextIOWrapper):
        screen.out.reconfigure(errors="backslashreplace")  # a terminal without UTF-8
    screen.show("\n".join(f"{s.title}\n" + "".join(f"  {line}\n" for line in s.sentences) for s in told))


@dataclass(frozen=True, slots=True)
class Look:
    """One look at both."""

    options: argparse.Namespace
    screen: Screen
    until_seen: ExitStack
    """Closes what Kafka was asked with."""

    def seen(self) -> Seen:
        """Raises ``UsageError``."""
        from tidegate.clock import SystemClock
        from tidegate.incident.listings import about_group
        from tidegate.incident.seen import Seen

        unseen: list[Unseen] = []
        # Before anything is asked: what is wrong in a file is told at once. Without one, what reads it is imported
        # while Kubernetes answers.
        given = self._given() if self.options.command_config is not None else None
        kube = self._kube(unseen)
        connection, group = self._connection(), self.options.group
        # At once: each may have to wait for what does not answer.
        with ThreadPoolExecutor(2, thread_name_prefix="tidegate-why") as threads:
            listing = threads.submit(about_group, kube, group, connection) if kube is not None else None
            spec = self._spec(kube, connection, unseen) if kube is not None and connection is not None else None
            config = self._config(given, spec, unseen)
            by_kafka = threads.submit(self._by_kafka, config) if config is not None else None
            # While they answer: the models take as long to import as answers take.
            from tidegate.incident.gather_kube import kube_seen, of_cluster

            from_kafka = by_kafka.result() if by_kafka is not None else None
            from_kube = None
            if listing is not None:
                from_kube = kube_seen(
                    listing.result(), where=self._where(), connection=connection, context=self.options.context
                )
        if from_kube is not None and not from_kube.listed:
            unseen += from_kube.unseen
            from_kube = None
        if from_kube is not None and from_kafka is not None and from_kafka.cluster_id and connection is None:
            from_kube = of_cluster(from_kube, from_kafka.cluster_id)
        return Seen(group, SystemClock().now(), from_kafka, from_kube, tuple(unseen))

    def reach(self, kube: KubeClient) -> tuple[Connection | None, list[Unseen]]:
        """How to reach Kafka, or why that is not known. Raises ``UsageError``."""
        unseen: list[Unseen] = []
        given = self._given() if self.options.command_config is not None else None
        named_one = self._connection()
        spec = self._spec(kube, named_one, unseen) if named_one is not None else None
        return self._config(given, spec, unseen), unseen

    def _connection(self) -> Named | None:
        if self.options.connection is None:
            return None
        return named(self.options.connection, namespace_of_options(self.options))

    def _kube(self, unseen: list[Unseen]) -> KubeClient | None:
        from tidegate.incident.seen import Unseen
        from tidegate.kube.api import NoCluster

        if self.options.no_kubernetes:
            unseen.append(Unseen("resources in Kubernetes", "not asked for, because of --no-kubernetes"))
            return None
        try:
            return kube_client(self.options, everywhere=self.options.all_namespaces)
        except NoCluster as failure:
            if self.options.connection is not None and self.options.bootstrap_server is None:
                raise UsageError(
                    f"--connection {self.options.connection} is read from Kubernetes, but {failure}. Point "
                    "to the cluster with KUBECONFIG or --context, or give --bootstrap-server to ask Kafka "
                    "only"
                ) from failure
            unseen.append(Unseen("resources in Kubernetes", str(failure)))
            return None

    def _spec(self, kube: KubeClient, connection: Named, unseen: list[Unseen]) -> KafkaConnectionSpec | None:
        from tidegate.incident.seen import Unseen
        from tidegate.kube.ports import CONNECTIONS, KubeFailure, NotFound
        from tidegate.resources.base import InvalidResource, parse_spec
        from tidegate.resources.connection import KafkaConnectionSpec

        label = "/".join(connection)
        try:
            return parse_spec(KafkaConnectionSpec, kube.get(CONNECTIONS, *connection))
        except NotFound:
            raise UsageError(
                f"--connection {label}: there is no such KafkaConnection; check its namespace and its name"
            ) from None
        except (KubeFailure, InvalidResource) as failure:
            unseen.append(Unseen(f"KafkaConnection {label}", str(failure)))
            return None

    def _given(self) -> Connection:
        """How to connect by ``--command-config``. Raises ``UsageError``."""
        from tidegate.admin.secret_files import SecretFiles
        from tidegate.cli.command_config import read_command_config

        secrets = self.until_seen.enter_context(closing(SecretFiles()))
        servers = self.options.bootstrap_server or _TO_BE_READ
        config = read_command_config(self.options.command_config, servers, secrets)
        if config.ignored:
            self.screen.note(f"Ignored in --command-config: {', '.join(config.ignored)}")
        if self.options.command_config is not None:
            # The KafkaConnection's servers are not known yet, and no setting depends on them.
            _try(replace(config.connection, bootstrap_servers=""), self.options.command_config)
        return config.connection

    def _config(
        self, given: Connection | None, spec: KafkaConnectionSpec | None, unseen: list[Unseen]
    ) -> Connection | None:
        """How to reach Kafka. A KafkaConnection's credentials are nothing that a person needs to be able to read."""
        from tidegate.incident.seen import Unseen

        servers = self.options.bootstrap_server
        if servers is None:
            if spec is None:
                unseen.append(Unseen("Kafka", _NO_SERVERS if self.options.connection is None else _UNREAD_SERVERS))
                return None
            if (spec.tls or spec.authentication) and self.options.command_config is None:
                why = "the KafkaConnection needs TLS or credentials, which are not read from it: give --command-config"
                unseen.append(Unseen("Kafka", why))
                return None
            servers = spec.bootstrap_servers

        given = given or self._given()
        topic = self.options.control_topic or (spec.control_topic.name if spec is not None else None)
        acks = self.options.ack_topic or (spec.control_topic.ack_topic if spec is not None else None)
        properties = {_SOCKET_TIMEOUT: _PATIENCE_MS, **given.properties}
        return replace(
            given,
            bootstrap_servers=servers,
            control_topic=topic or given.control_topic,
            ack_topic=acks or given.ack_topic,
            properties=properties,
        )

    def _by_kafka(self, connection: Connection) -> KafkaSeen:
        from tidegate.incident.gather_kafka import look_at_kafka
        from tidegate.kafka_client.client import KafkaClient
        from tidegate.kafka_client.settings import BadConnection

        try:
            with closing(KafkaClient(connection)) as kafka:
                return look_at_kafka(kafka, self.options.group, connection.control_topic)
        except BadConnection as error:
            raise UsageError(str(error)) from error

    def _where(self) -> str:
        return "all namespaces" if self.options.all_namespaces else f"namespace {namespace_of_options(self.options)}"


def _try(connection: Connection, file: Path) -> None:
    """Raises ``UsageError`` for settings that a client library refuses, before a client is needed."""
    from tidegate.cli.command_config import with_kafkas_name
    from tidegate.kafka_client.client import SETTINGS_REFUSED, try_settings
    from tidegate.kafka_client.settings import BadConnection

    try:
        try_settings(connection)
    except BadConnection as error:
        why = with_kafkas_name(str(error).removeprefix(SETTINGS_REFUSED))
        raise UsageError(
            f"--command-config {file}: a setting is refused: {why}. Correct it in that file, or leave it out"
        ) from error
