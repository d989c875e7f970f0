"""Real Kafka brokers (KRaft) on this machine."""

import base64
import socket
import struct
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from devstack import prerequisites
from devstack.errors import StackError
from devstack.kafka_security import KafkaSecurity, create_security
from devstack.processes import RunFolder, Service, close_run, eventually, free_ports, sweep, tail
from devstack.toolcache import DEV, KAFKA_VERSION, kafka_libs

# What the stack says about new topics and groups; everything not named here is as Kafka ships it.
BROKER_DEFAULTS: Mapping[str, str] = {
    "auto.create.topics.enable": "false",
    # Real records have old timestamps: a broker that deleted by age would delete them as they come.
    "log.retention.ms": "-1",
    # A group's first join is answered at once instead of after 3 s.
    "group.initial.rebalance.delay.ms": "0",
    # 50 partitions each by default, which are made at first use: 3 s that show nothing.
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
    "share.coordinator.state.topic.num.partitions": "3",
    # A killed broker may come back when its old session is over: after 4 s instead of 9.
    "broker.heartbeat.interval.ms": "1000",
    "broker.session.timeout.ms": "4000",
}
START_SECONDS = 90.0
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class _Broker:
    node_id: int
    ports: Mapping[str, int]
    config: Path
    data: Path
    log: Path
    service: Service


class KafkaCluster:
    """Brokers, started by `start` or there already (`attach`); a context manager that ends what it started.

    Brokers are numbered 0 … n−1, which is their ``node.id``. Each is broker and controller at once.
    """

    def __init__(
        self,
        bootstrap: str,
        run: RunFolder | None,
        brokers: tuple[_Broker, ...],
        security: KafkaSecurity | None,
        *,
        keeps_data: bool = False,
        host: str = LOOPBACK,
    ) -> None:
        self.bootstrap = bootstrap
        self._run = run
        self._brokers = brokers
        self._security = security
        self._keeps_data = keeps_data
        self._host = host

    @classmethod
    def start(
        cls,
        brokers: int = 1,
        properties: Mapping[str, str] | None = None,
        *,
        directory: Path | None = None,
        security: str = "plaintext",
        authorizer: bool = False,
        detached: bool = False,
        heap: str | None = None,
        host: str = LOOPBACK,
        version: str = KAFKA_VERSION,
    ) -> Self:
        """Start `brokers` brokers and wait until they serve.

        `properties` come on top of the broker's; `directory` keeps the data there after the end (and goes on from data
        that is there), otherwise it is in a temporary folder. ``security="sasl_ssl"`` adds a SASL_SSL and an SSL
        listener (`KafkaSecurity`), `authorizer` Kafka's own. `detached`: they outlive this process. `heap`: of each
        broker, as ``-Xmx`` takes it. `host`: where they listen, and what they tell clients: an address of this machine,
        such as one that pods reach. `version`: the release of Kafka. Raises `StackError` with the log's end, and
        `MissingPrerequisiteError`.
        """
        if security not in ("plaintext", "sasl_ssl"):
            raise ValueError(f"security is plaintext or sasl_ssl, not {security!r}")
        prerequisites.linux()
        prerequisites.java()
        libs = kafka_libs(version)
        sweep()
        # A port may be taken between looking and binding; the next attempt draws others.
        for attempts_left in (2, 1, 0):
            run = RunFolder.create("kafka", at=directory)
            heap = heap or ("512m" if brokers == 1 else "320m")
            layout, secured = _lay_out(
                run, brokers, properties or {}, security == "sasl_ssl", authorizer, detached, heap, host, libs
            )
            bootstrap = ",".join(f"{host}:{broker.ports['PLAINTEXT']}" for broker in layout)
            cluster = cls(bootstrap, run, layout, secured, keeps_data=directory is not None, host=host)
            try:
                _format(layout, run, secured, libs)
                for broker in layout:
                    broker.service.start()
                cluster.wait_ready()
                if detached:
                    run.detach()
            except StackError as error:
                port_taken = any("Address already in use" in tail(broker.log, 300) for broker in layout)
                cluster.close(failed=not port_taken)
                if not (port_taken and attempts_left):
                    raise StackError(f"Kafka did not start: {error}") from error
            except BaseException:
                cluster.close()
                raise
            else:
                return cluster
        raise StackError("Kafka did not start: no free ports")

    @classmethod
    def attach(cls, bootstrap: str) -> Self:
        """Brokers that somebody else runs; they cannot be killed or stopped from here."""
        return cls(bootstrap, None, (), None)

    @property
    def attached(self) -> bool:
        """Whether somebody else runs the brokers."""
        return self._run is None

    @property
    def brokers(self) -> tuple[int, ...]:
        """The node ids."""
        return tuple(broker.node_id for broker in self._brokers)

    @property
    def security(self) -> KafkaSecurity:
        """Users, certificates and addresses of the secured listeners."""
        if self._security is None:
            raise StackError('this cluster has no secured listeners; start it with security="sasl_ssl"')
        return self._security

    @property
    def logs(self) -> Path | None:
        """The folder of the brokers' logs; None when somebody else runs them."""
        return self._run.logs if self._run else None

    @property
    def folder(self) -> Path | None:
        """The run folder; None when somebody else runs the brokers."""
        return self._run.path if self._run else None

    def address(self, broker: int) -> str:
        """``host:port`` of one broker's plaintext listener."""
        return f"{self._host}:{self._broker(broker).ports['PLAINTEXT']}"

    def alive(self, broker: int) -> bool:
        """Whether the broker's process runs."""
        return self._broker(broker).service.alive

    def pid(self, broker: int) -> int:
        """The broker's process."""
        return self._broker(broker).service.pid

    def kill(self, broker: int) -> None:
        """SIGKILL, as a crash; returns when the process is gone."""
        self._broker(broker).service.kill()

    def stop_broker(self, broker: int) -> None:
        """A controlled shutdown (SIGTERM), bounded by 15 s; returns when the process is gone."""
        self._broker(broker).service.stop()

    def restart(self, broker: int) -> None:
        """Start the broker again on its data and port, and wait until all running brokers serve.

        One that runs is stopped first. After `kill` the controller lets it back when its old session is over (4 s).
        """
        service = self._broker(broker).service
        if service.alive:
            service.stop()
        service.start()
        self.wait_ready()

    def wait_ready(self, timeout: float = START_SECONDS) -> None:
        """Wait until every broker that runs knows of every other one, unfenced. Raises `StackError`."""
        if self.attached:
            addresses = self.bootstrap.split(",")
            if not eventually(lambda: any(living_brokers(address) for address in addresses), timeout):
                raise StackError(f"no broker answers at {self.bootstrap} within {timeout:.0f} s")
            return
        expected = {broker.node_id for broker in self._brokers if broker.service.alive}

        def ready() -> bool:
            for broker in self._brokers:
                if broker.node_id in expected and not broker.service.alive:
                    raise StackError(f"broker {broker.node_id} ended:\n{self.log_tail(broker.node_id)}")
            return all(living_brokers(self.address(node)) == expected for node in expected)

        if not eventually(ready, timeout):
            ends = "\n".join(self.log_tail(node) for node in sorted(expected))
            raise StackError(f"brokers {sorted(expected)} do not serve within {timeout:.0f} s:\n{ends}")

    def log_tail(self, broker: int = 0, lines: int = 30) -> str:
        """The end of a broker's log and of what it printed."""
        return "\n".join(
            part for part in (tail(self._broker(broker).log, lines), self._broker(broker).service.tail(lines)) if part
        )

    def tool(self, main_class: str, *arguments: str, timeout: float = 120) -> str:
        """Run one of Kafka's command-line tools, e.g. ``org.apache.kafka.tools.consumer.group.ConsumerGroupCommand``.

        Returns its standard output. Raises `StackError` with both outputs when it fails.
        """
        command = [*tool_command(main_class), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
        if done.returncode != 0:
            raise StackError(f"{main_class} {' '.join(arguments)} failed: {done.stdout}{done.stderr}")
        return done.stdout

    def close(self, *, failed: bool = False) -> None:
        """End the brokers at once. Their data goes, their logs are kept if something `failed`."""
        if self._run is None:
            return
        services = [broker.service for broker in self._brokers]
        if self._keeps_data:
            for service in services:
                service.stop()
        else:
            close_run(self._run, services, failed=failed)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(failed=kind is not None)

    def _broker(self, broker: int) -> _Broker:
        if self._run is None:
            raise StackError(f"the brokers at {self.bootstrap} are not ours to look into, stop or start")
        return self._brokers[broker]


def tool_command(main_class: str, *, heap: str = "256m", log: Path = Path("/dev/null")) -> list[str]:
    """The command line that starts one of Kafka's Java programs; its arguments follow. What it logs goes to `log`."""
    return [*_java(heap, log), main_class]


def script_command(main_class: str, *, heap: str = "256M", libs: Path | None = None) -> list[str]:
    """The command line with which Kafka's own script starts a tool (``bin/kafka-run-class.sh``): what a user has.

    For benchmarks that measure against the tool. ``heap``: 512M where the tool's script asks for it, as that of
    ``kafka-consumer-perf-test.sh`` does. ``libs``: the folder of the program's jars, where it is not the broker's.
    """
    return [*_java(heap, Path("/dev/null"), _AS_ITS_SCRIPT, libs=libs), main_class]


def connect_command(libs: Path, log: Path) -> list[str]:
    """The command line of a Connect worker in distributed mode, from its jars in ``libs``; its settings' file follows.
    What it logs goes to `log`."""
    return [*_java("256m", log, libs=libs), "org.apache.kafka.connect.cli.ConnectDistributed"]


def living_brokers(address: str) -> set[int]:
    """The node ids that the broker at ``host:port`` knows as unfenced; empty when it does not answer (yet).

    A Metadata request, version 1, for no topics.
    """
    host, _, port = address.rpartition(":")
    client = b"tidegate-dev"
    request = struct.pack(">hhih", 3, 1, 1, len(client)) + client + struct.pack(">i", 0)
    try:
        with socket.create_connection((host, int(port)), timeout=2) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            with connection.makefile("rb") as stream:
                (length,) = struct.unpack(">i", stream.read(4))
                answer = stream.read(length)
        return set(_nodes(answer))
    except (OSError, struct.error):
        return set()


def _nodes(answer: bytes) -> Iterator[int]:
    position = 4  # the correlation id
    (count,) = struct.unpack_from(">i", answer, position)
    position += 4
    for _ in range(count):
        node, host_length = struct.unpack_from(">ih", answer, position)
        position += 6 + host_length + 4
        (rack_length,) = struct.unpack_from(">h", answer, position)
        position += 2 + max(rack_length, 0)
        yield node


def _lay_out(
    run: RunFolder,
    count: int,
    properties: Mapping[str, str],
    secured: bool,
    authorizer: bool,
    detached: bool,
    heap: str,
    host: str,
    libs: Path,
) -> tuple[tuple[_Broker, ...], KafkaSecurity | None]:
    """Draw the ports and write each broker's properties."""
    listeners = ("PLAINTEXT", "CONTROLLER", *(("SASL_SSL", "SSL") if secured else ()))
    drawn = iter(free_ports(count * len(listeners)))
    ports = [{listener: next(drawn) for listener in listeners} for _ in range(count)]

    def addresses(listener: str) -> str:
        return ",".join(f"{host}:{of_one[listener]}" for of_one in ports)

    security = create_security(run.secrets, addresses("SASL_SSL"), addresses("SSL"), host) if secured else None
    replicas = str(min(3, count))
    shared = {
        **BROKER_DEFAULTS,
        "process.roles": "broker,controller",
        "controller.quorum.voters": ",".join(
            f"{node}@{host}:{of_one['CONTROLLER']}" for node, of_one in enumerate(ports)
        ),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL",
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": "1",
        "default.replication.factor": replicas,
        **(security.broker_properties(authorizer=authorizer) if security else {}),
    }
    brokers = []
    for node, of_one in enumerate(ports):
        name = f"kafka-{node}"
        own = {
            "node.id": str(node),
            "log.dirs": str(run.data / name),
            "listeners": ",".join(f"{listener}://{host}:{port}" for listener, port in of_one.items()),
            "advertised.listeners": ",".join(
                f"{listener}://{host}:{port}" for listener, port in of_one.items() if listener != "CONTROLLER"
            ),
        }
        config = run.secrets / f"{name}.properties"
        config.touch(mode=0o600)
        config.write_text("".join(f"{key}={value}\n" for key, value in {**shared, **own, **properties}.items()))
        log = run.logs / f"{name}.log"
        command = [*_java(heap, log, libs=libs), "kafka.Kafka", str(config)]
        service = Service(name, command, run, detached=detached)
        brokers.append(_Broker(node, of_one, config, run.data / name, log, service))
    return tuple(brokers), security


_QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""A quick start matters more here than peak speed, and the benchmarks' clients share the two cores."""

_AS_ITS_SCRIPT: Final = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
"""``KAFKA_JVM_PERFORMANCE_OPTS`` as ``kafka-run-class.sh`` sets it."""


def _java(heap: str, log: Path, options: Sequence[str] = _QUICK, *, libs: Path | None = None) -> list[str]:
    return [
        prerequisites.java().path,
        f"-Xmx{heap}",
        *options,
        f"-Dlog4j2.configurationFile={DEV / 'kafka' / 'log4j2.properties'}",
        f"-Dtidegate.log={log}",
        "-cp",
        f"{libs or kafka_libs()}/*",
    ]


def _new_cluster_id() -> str:
    """A UUID in base64url; as with Kafka's Uuid.randomUuid no leading dash, which tools would take for an option."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()).startswith("-"):
        pass
    return text


def _format(brokers: tuple[_Broker, ...], run: RunFolder, security: KafkaSecurity | None, libs: Path) -> None:
    """Prepare the data folders of new brokers, all for one cluster id."""
    new = [broker for broker in brokers if not (broker.data / "meta.properties").exists()]
    cluster_id = _new_cluster_id()
    scram = [
        part for credential in (security.scram_credentials if security else ()) for part in ("--add-scram", credential)
    ]

    def format_one(broker: _Broker) -> None:
        log = run.logs / f"{broker.data.name}-format.log"
        # A quorum of fixed voters: the initial controllers need not be named again.
        arguments = ["format", "--cluster-id", cluster_id, "--config", str(broker.config), *scram]
        command = [*_java("128m", log, libs=libs), "kafka.tools.StorageTool", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            raise StackError(f"formatting {broker.data} failed: {done.stdout}{done.stderr}")

    with ThreadPoolExecutor(max_workers=2) as pool:
        list(pool.map(format_one, new))
