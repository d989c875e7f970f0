"""The local stack, for development, the demo and the tests: real Kafka brokers, a real Kubernetes API server or node.

Standard library only, so that it runs before the project's environment exists.
"""

from devstack.apiserver import ApiServer
from devstack.errors import MissingPrerequisiteError, StackError
from devstack.images import build_image, image_name
from devstack.kafka import KafkaCluster, script_command, tool_command
from devstack.kafka_security import KafkaSecurity
from devstack.node import Node
from devstack.toolcache import (
    etcd_binary,
    helm_binary,
    kafka_libs,
    kube_apiserver_binary,
    kube_score_binary,
    spark_jars,
    spark_operator_crds,
    toolcache,
)

__all__ = [
    "ApiServer",
    "KafkaCluster",
    "KafkaSecurity",
    "MissingPrerequisiteError",
    "Node",
    "StackError",
    "build_image",
    "etcd_binary",
    "helm_binary",
    "image_name",
    "kafka_libs",
    "kube_apiserver_binary",
    "kube_score_binary",
    "script_command",
    "spark_jars",
    "spark_operator_crds",
    "tool_command",
    "toolcache",
]
