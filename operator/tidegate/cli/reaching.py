"""What commands for an incident share: how they reach Kafka and Kubernetes, and how they print for programs."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.cli.errors import Parser
from tidegate.kube.kubeconfig import own_namespace

if TYPE_CHECKING:
    from tidegate.kube.client import KubeClient

Named = tuple[str, str]
"""Namespace and name."""


def add_kubernetes(parser: argparse.ArgumentParser, *, of: str, all_namespaces: bool = False) -> None:
    """``of``: whose namespace it is."""
    kubernetes = parser.add_argument_group("Kubernetes")
    kubernetes.add_argument(
        "--namespace", "-n", metavar="NAMESPACE", help=f"the namespace {of} (default: that of the kubeconfig)"
    )
    if all_namespaces:
        kubernetes.add_argument("--all-namespaces", "-A", action="store_true", help="all namespaces, instead of one")
    kubernetes.add_argument(
        "--context", metavar="CONTEXT", help="the context of the kubeconfig (default: its current one)"
    )


def add_kafka(parser: argparse.ArgumentParser) -> None:
    kafka = parser.add_argument_group("Kafka")
    kafka.add_argument("--bootstrap-server", metavar="HOST:PORT", help="the server(s) to connect to")
    kafka.add_argument(
        "--command-config", type=Path, metavar="FILE", help="a properties file for Java clients, to connect with"
    )
    kafka.add_argument("--control-topic", metavar="TOPIC", help="the topic where holds are written")
    kafka.add_argument("--ack-topic", metavar="TOPIC", help="the topic where the agents' acks are read")


def add_output(parser: Parser) -> None:
    parser.add_output("text", "json", "yaml", says="text for people (default), or json or yaml for programs")


def namespace_of_options(options: argparse.Namespace) -> str:
    return options.namespace or own_namespace(os.environ, options.context)


def with_namespace(options: argparse.Namespace) -> argparse.Namespace:
    """The same, with the namespace that it is about where none was given."""
    options.namespace = namespace_of_options(options)
    return options


def kube_client(options: argparse.Namespace, *, everywhere: bool = False) -> KubeClient:
    """Raises ``NoCluster``. The Kubernetes client is imported only now."""
    from tidegate.clock import SystemClock
    from tidegate.kube.api import default_api_client

    api = default_api_client(options.context)
    from tidegate.kube.client import KubeClient

    return KubeClient(api, SystemClock(), [] if everywhere else [namespace_of_options(options)])


def dumped(value: Mapping[str, Any], output: str) -> str:
    """As JSON in ASCII, which drives no terminal; or the same as YAML."""
    if output == "json":
        return json.dumps(value, indent=2) + "\n"
    import yaml

    return str(yaml.safe_dump(value, sort_keys=False))


def connection_ref(text: str) -> dict[str, str]:
    """``spec.connectionRef`` of ``[NAMESPACE/]NAME``."""
    namespace, name = named(text, "")
    return {"name": name, **({"namespace": namespace} if namespace else {})}


def named(text: str, namespace: str) -> Named:
    """``[NAMESPACE/]NAME``."""
    of, _, name = text.rpartition("/")
    return of or namespace, name
