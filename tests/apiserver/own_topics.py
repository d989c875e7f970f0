"""Control topics of a test's own, which it may spoil."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from devstack import KafkaCluster
from support.operator_process import Resources
from tidegate.control.ports import ControlTopics
from tidegate.kafka.connection import Connection
from tidegate.kafka_client.client import KafkaClient


class Own:
    """A connection `kafka` with control topics of its own, which a test may spoil."""

    def __init__(self, resources: Resources, kafka: KafkaCluster, name: str) -> None:
        self.resources, self.bootstrap, self.control_topic = resources, kafka.bootstrap, name
        self.admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        self._client = KafkaClient(Connection(kafka.bootstrap, control_topic=name))
        resources.connection("kafka", kafka.bootstrap, controlTopic={"name": name})

    @property
    def control(self) -> ControlTopics:
        return self._client.control

    def managed(self, group: str) -> frozenset[str]:
        """Members of the group that are known to run the agent."""
        return self._client.managed_members(group)

    def holders(self) -> set[str]:
        return {key.holder for key in self.control.read().holds}

    def create(self, name: str, config: Mapping[str, str]) -> None:
        self.admin.create_topics([NewTopic(name, 1, 1, config=dict(config))])[name].result(20)

    def delete(self, *names: str) -> None:
        for future in self.admin.delete_topics(list(names)).values():
            future.result(20)

    def set_config(self, name: str, **config: str) -> None:
        entries = [
            ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for key, value in config.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result(20)

    def close(self) -> None:
        self._client.control.close()
        self._client.close()
