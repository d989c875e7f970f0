"""Which of the stack's tools a command uses, in the order in which they are best made."""

from typing import Final

from devstack.java_agent import java_agent
from devstack.java_clients import CLIENT_VERSIONS, kafka_client
from devstack.toolcache import (
    COREDNS,
    ETCD,
    HELM,
    KAFKA,
    KUBE_APISERVER,
    KUBE_CONTROLLER_MANAGER,
    KUBE_PROXY,
    KUBE_SCHEDULER,
    KUBE_SCORE,
    KUBELET,
    OLD_KAFKA_VERSION,
    PAUSE,
    SPARK_CONNECTOR,
    SPARK_OPERATOR,
    SPARK_OPERATOR_FILES,
    Tool,
    kafka_broker,
)

UP: Final[tuple[Tool, ...]] = (KAFKA, ETCD, KUBE_APISERVER)
JAVA_AGENT: Final = java_agent()
DEMO: Final = (KAFKA, SPARK_CONNECTOR, JAVA_AGENT, ETCD, KUBE_APISERVER)
OLD_KAFKA: Final = kafka_broker(OLD_KAFKA_VERSION)
OLDEST_AND_NEWEST_CLIENT: Final = (kafka_client(CLIENT_VERSIONS[0]), kafka_client(CLIENT_VERSIONS[-1]))
TEST: Final = (*DEMO, OLD_KAFKA, *OLDEST_AND_NEWEST_CLIENT, SPARK_OPERATOR_FILES, HELM, KUBE_SCORE)
NODE: Final = (
    *TEST,
    *(KUBE_CONTROLLER_MANAGER, KUBE_SCHEDULER, KUBELET, KUBE_PROXY, COREDNS, PAUSE, SPARK_OPERATOR),
)


def build(tools: tuple[Tool, ...]) -> None:
    """Make those that are not there, one after the other.

    Each ``go build`` takes all cores, and what two have in common is compiled once.
    Raises `MissingPrerequisiteError` or `StackError`.
    """
    for tool in tools:
        tool.folder()
