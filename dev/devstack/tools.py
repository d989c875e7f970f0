"""Which of the stack's tools a command uses, in the order in which they are best made."""

from typing import Final

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
    PAUSE,
    SPARK_CONNECTOR,
    SPARK_OPERATOR,
    SPARK_OPERATOR_FILES,
    Tool,
)

UP: Final[tuple[Tool, ...]] = (KAFKA, ETCD, KUBE_APISERVER)
DEMO: Final = (KAFKA, SPARK_CONNECTOR, ETCD, KUBE_APISERVER)
TEST: Final = (*DEMO, SPARK_OPERATOR_FILES, HELM, KUBE_SCORE)
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
