"""The local stack: real Kafka brokers and a real Kubernetes API server, for development, the demo and the tests.

Standard library only, so that it runs before the project's environment exists.
"""

from devstack.apiserver import ApiServer
from devstack.errors import MissingPrerequisiteError, StackError
from devstack.kafka import KafkaCluster, tool_command
from devstack.kafka_security import KafkaSecurity
from devstack.toolcache import (
    etcd_binary,
    helm_binary,
    kafka_libs,
    kube_apiserver_binary,
    spark_jars,
    spark_operator_crds,
    toolcache,
)

__all__ = [
    "ApiServer",
    "KafkaCluster",
    "KafkaSecurity",
    "MissingPrerequisiteError",
    "StackError",
    "etcd_binary",
    "helm_binary",
    "kafka_libs",
    "kube_apiserver_binary",
    "spark_jars",
    "spark_operator_crds",
    "tool_command",
    "toolcache",
]
