"""A real Kafka Connect worker in distributed mode, from Kafka's jars, with Kafka's own file connectors.

Each has topics and a group of its own on the broker, so that several of them may be workers of different clusters.
"""

from __future__ import annotations

import http.client
import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from devstack.errors import StackError
from devstack.kafka import connect_command
from devstack.processes import RunFolder, Service, close_run, eventually, free_ports
from devstack.toolcache import KAFKA_VERSION, kafka_connect

START_S: Final = 60.0
FILE_SINK: Final = "org.apache.kafka.connect.file.FileStreamSinkConnector"
FILE_SOURCE: Final = "org.apache.kafka.connect.file.FileStreamSourceConnector"


class ConnectWorker:
    """One worker at ``url``, a cluster of its own; a context manager that ends it."""

    def __init__(self, bootstrap: str, version: str = KAFKA_VERSION, properties: Mapping[str, str] | None = None):
        self._port = free_ports(1)[0]
        self.url = f"http://127.0.0.1:{self._port}"
        self._run = RunFolder.create("connect")
        name = f"connect-{secrets.token_hex(4)}"
        libs = kafka_connect(version).folder()
        config = self._run.data / "worker.properties"
        # Kafka's script has all jars on the class path; the worker looks for plugins in one folder, in few jars.
        plugins = self._run.data / "plugins" / "connect-file"
        plugins.mkdir(parents=True)
        for jar in libs.glob("connect-file-*.jar"):
            (plugins / jar.name).symlink_to(jar)
        settings = _settings(bootstrap, name, self._port, plugins.parent) | dict(properties or {})
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = connect_command(libs, self._run.logs / "worker.log")
        self._service = Service("worker", [*command, str(config)], self._run)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            close_run(self._run, [self._service], failed=True)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        close_run(self._run, [self._service], failed=kind is not None)

    def start(self) -> None:
        """Start it, again too, and wait until it has read its topics and serves."""
        self._service.start()
        if not eventually(self._serves, START_S):
            raise StackError(f"the Connect worker does not serve:\n{self._service.tail()}")

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        self._service.kill()

    def stop(self) -> None:
        """An orderly end."""
        self._service.stop()

    def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """One request: the status code and what the worker answers, parsed. Raises ``OSError``."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=100)
        try:
            sent = None if body is None else json.dumps(body)
            connection.request(method, path, sent, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            # While it starts, its web server answers with a page.
            is_json = "json" in answer.getheader("Content-Type", "") and text
            return answer.status, json.loads(text) if is_json else text.decode()
        finally:
            connection.close()

    def create_sink(self, name: str, topic: str, file: Path, **config: str) -> None:
        """A sink that appends each value as a line to ``file``, which begins at the topic's first record."""
        self.create(name, {"connector.class": FILE_SINK, "topics": topic, "file": str(file), **config})

    def create(self, name: str, config: Mapping[str, str]) -> None:
        """Create a connector, and wait until its tasks run."""
        code, answer = self.call("PUT", f"/connectors/{name}/config", {"tasks.max": "1", **config})
        if code not in (200, 201):
            raise StackError(f"connector {name}: {code} {answer}")
        self.wait_states(name, "RUNNING")

    def delete(self, name: str) -> None:
        """Delete a connector, if it is there."""
        self.call("DELETE", f"/connectors/{name}")

    def states(self, name: str) -> tuple[str, ...]:
        """The state of the connector, and those of its tasks."""
        code, said = self.call("GET", f"/connectors/{name}/status")
        if code != 200:
            return ()
        return (said["connector"]["state"], *(task["state"] for task in said["tasks"]))

    def wait_states(self, name: str, connector: str, seconds: float = 60) -> None:
        """Until the connector and all its tasks are in this state; ``STOPPED`` has no tasks."""
        wanted = {connector}
        least = 1 if connector == "STOPPED" else 2
        if not eventually(lambda: set(s := self.states(name)) == wanted and len(s) >= least, seconds):
            raise StackError(f"connector {name} is {self.states(name)}, not {connector}")

    def _serves(self) -> bool:
        if not self._service.alive:
            raise StackError(f"the Connect worker has ended:\n{self._service.tail()}")
        try:
            return self.call("GET", "/connectors")[0] == 200
        except (OSError, http.client.HTTPException):
            return False


def _settings(bootstrap: str, name: str, port: int, plugins: Path) -> dict[str, str]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": name,
        "listeners": f"http://127.0.0.1:{port}",
        "config.storage.topic": f"{name}-configs",
        "offset.storage.topic": f"{name}-offsets",
        "status.storage.topic": f"{name}-status",
        "config.storage.replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "status.storage.replication.factor": "1",
        "offset.storage.partitions": "1",
        "status.storage.partitions": "1",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "offset.flush.interval.ms": "500",
        "plugin.path": str(plugins),
        "plugin.discovery": "service_load",
        "connector.client.config.override.policy": "All",
        "consumer.auto.offset.reset": "earliest",
    }
