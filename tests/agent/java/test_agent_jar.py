"""The jar that a JVM loads: what is in it, when it stays out, and what it leaves alone. Without a broker."""

from __future__ import annotations

import io
import os
import subprocess
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from devstack.java_agent import agent_jar
from devstack.java_clients import java_program, kafka_client

JAVA_8 = 52
"""The version of class files that Java 8 reads."""

_TWO_CONSUMERS = """
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class TwoConsumers {
  public static void main(String[] arguments) {
    Map<String, Object> config = new HashMap<>();
    config.put("bootstrap.servers", "127.0.0.1:1");
    config.put("group.id", "payments");
    if (arguments.length > 0) {
      config.put(arguments[0], arguments[1]);
    }
    for (int number = 0; number < 2; number++) {
      Consumer<byte[], byte[]> consumer =
          new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
      boolean isGoverned = Arrays.toString(consumer.getClass().getInterfaces()).contains("Governed");
      System.out.println("governed: " + isGoverned);
      consumer.close(java.time.Duration.ofMillis(10));
    }
  }
}
"""

_DEPLOYED_TWICE = """
import java.io.File;
import java.lang.ref.WeakReference;
import java.lang.reflect.*;
import java.net.*;
import java.time.Duration;
import java.util.*;
import java.util.stream.Collectors;

/** As a server of applications does: each deployment has a class loader of its own, which is dropped in the end. */
public class DeployedTwice {
  public static void main(String[] jars) throws Exception {
    for (int number = 0; number < 2; number++) {
      WeakReference<ClassLoader> loader = deploy(jars);
      long until = System.nanoTime() + 30_000_000_000L;
      while ((loader.get() != null || !threads().isEmpty()) && System.nanoTime() < until) {
        System.gc();
        Thread.sleep(50);
      }
      System.out.println("left: " + threads() + (loader.get() == null ? "" : " class loader"));
    }
  }

  private static WeakReference<ClassLoader> deploy(String[] jars) throws Exception {
    URL[] urls = new URL[jars.length];
    for (int i = 0; i < jars.length; i++) {
      urls[i] = new File(jars[i]).toURI().toURL();
    }
    URLClassLoader loader = new URLClassLoader(urls, ClassLoader.getPlatformClassLoader());
    Thread.currentThread().setContextClassLoader(loader);
    String bytes = "org.apache.kafka.common.serialization.ByteArrayDeserializer";
    Map<String, Object> config = new HashMap<>();
    config.put("bootstrap.servers", "127.0.0.1:1");
    config.put("group.id", "payments");
    config.put("key.deserializer", bytes);
    config.put("value.deserializer", bytes);
    Class<?> type = loader.loadClass("org.apache.kafka.clients.consumer.KafkaConsumer");
    Object consumer = type.getConstructor(Map.class).newInstance(config);
    Object partition = loader.loadClass("org.apache.kafka.common.TopicPartition")
        .getConstructor(String.class, int.class).newInstance("orders", 0);
    type.getMethod("assign", Collection.class).invoke(consumer, Arrays.asList(partition));
    type.getMethod("poll", Duration.class).invoke(consumer, Duration.ofMillis(200));
    System.out.println("runs: " + threads());
    type.getMethod("close", Duration.class).invoke(consumer, Duration.ofMillis(10));
    Thread.currentThread().setContextClassLoader(ClassLoader.getSystemClassLoader());
    loader.close();
    return new WeakReference<>(loader);
  }

  private static Set<String> threads() {
    return Thread.getAllStackTraces().keySet().stream().map(Thread::getName)
        .filter(name -> name.startsWith("tidegate")).collect(Collectors.toCollection(TreeSet::new));
  }
}
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a program with two consumers, with the agent, on this release of kafka-clients or on another folder's."""

    def run(*arguments: str, env: Mapping[str, str], jars: Path | None = None) -> subprocess.CompletedProcess[str]:
        source = tmp_path / "TwoConsumers.java"
        source.write_text(_TWO_CONSUMERS)
        classes = f"{jars or kafka_client('4.3.1').folder()}/*"
        return _java("-cp", classes, str(source), *arguments, env=env)

    return run


def _java(*arguments: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    command = [java_program(17), f"-javaagent:{agent_jar()}", *quick, *arguments]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEGATE", "JAVA_TOOL"))}
    return subprocess.run(command, env={**inherited, **env}, capture_output=True, text=True, timeout=120, check=False)


def test_it_is_small_runs_on_java_8_and_has_nothing_under_names_of_others() -> None:
    jar = agent_jar()
    assert jar.name == "tidegate-agent.jar"
    assert jar.stat().st_size < 6_000_000
    with zipfile.ZipFile(jar) as outer, zipfile.ZipFile(io.BytesIO(outer.read("tidegate-runtime.jar"))) as runtime:
        for archive, fewest in ((outer, 1000), (runtime, 200)):
            classes = [name for name in archive.namelist() if name.endswith(".class")]
            assert len(classes) > fewest
            assert {name for name in classes if not name.startswith("io/tidegate/agent/")} == set()
            assert {int.from_bytes(archive.read(name)[6:8], "big") for name in classes} <= set(range(49, JAVA_8 + 1))
            assert {name for name in archive.namelist() if name.startswith("META-INF/services/")} == set()
            assert "META-INF/LICENSE" in archive.namelist()


@pytest.mark.parametrize(
    ("variable", "value"), [("TIDEGATE_ON_UNREACHABLE", "perhaps"), ("TIDEGATE_NEW_PARTITIONS", "sometimes")]
)
def test_a_bad_value_keeps_a_jvm_from_starting_where_the_agent_is_strict(variable: str, value: str) -> None:
    env = {"TIDEGATE_AGENT": "1", variable: value}
    lenient = _java("-version", env=env)
    strict = _java("-version", env={**env, "TIDEGATE_STRICT": "true"})
    assert lenient.returncode == 0
    assert variable in lenient.stderr
    assert strict.returncode == 1
    assert variable in strict.stderr
    assert "FATAL" not in strict.stderr


def test_it_is_off_unless_it_is_wanted(run: Run) -> None:
    assert run(env={}).stdout == "governed: false\n" * 2
    assert run(env={"TIDEGATE_AGENT": "1"}).stdout == "governed: true\n" * 2


def test_one_that_is_given_twice_is_there_once(run: Run) -> None:
    """By the command line and by the environment, as in an image that has it already."""
    done = run(env={"TIDEGATE_AGENT": "1", "JAVA_TOOL_OPTIONS": f"-javaagent:{agent_jar()}"})
    assert done.stdout == "governed: true\n" * 2
    assert "[tidegate]" not in done.stderr


@pytest.mark.parametrize("client", ["4.3.1", pytest.param("2.8.2", marks=pytest.mark.nightly)])
def test_an_application_that_is_deployed_again_leaves_neither_threads_nor_class_loaders(
    tmp_path: Path, client: str
) -> None:
    """Where it closes its consumers."""
    source = tmp_path / "DeployedTwice.java"
    source.write_text(_DEPLOYED_TWICE)
    jars = [str(jar) for jar in sorted(kafka_client(client).folder().glob("*.jar"))]

    done = _java(str(source), *jars, env={"TIDEGATE_AGENT": "1"})

    assert (
        done.stdout.splitlines()
        == [
            "runs: [tidegate-agent-acks, tidegate-agent-keeper, tidegate-agent-reader]",
            "left: []",
        ]
        * 2
    ), done.stdout + done.stderr


def test_a_consumer_of_a_client_that_is_built_otherwise_is_left_alone_and_that_is_said_once(
    run: Run, tmp_path: Path
) -> None:
    """As a later release may be: one method, and whoever calls it, has another name."""
    jars = tmp_path / "jars"
    jars.mkdir()
    for jar in kafka_client("4.3.1").folder().glob("*.jar"):
        if not jar.name.startswith("kafka-clients"):
            (jars / jar.name).symlink_to(jar)
            continue
        with zipfile.ZipFile(jar) as before, zipfile.ZipFile(jars / jar.name, "w") as after:
            for name in before.namelist():
                after.writestr(name, before.read(name).replace(b"fetchablePartitions", b"fetchablePartitionz"))
    done = run(env={"TIDEGATE_AGENT": "1", "TIDEGATE_LOG": "INFO"}, jars=jars)
    assert done.stdout == "governed: false\n" * 2
    assert done.stderr.count("does not govern this consumer") == 1
    assert "fetchablePartitions" in done.stderr


def test_the_newer_protocol_where_it_was_not_finished_is_left_alone(run: Run) -> None:
    env = {"TIDEGATE_AGENT": "1", "TIDEGATE_LOG": "INFO"}
    done = run("group.protocol", "consumer", env=env, jars=kafka_client("3.7.2").folder())
    assert done.stdout == "governed: true\n" * 2, "the class is, by the classic protocol"
    assert done.stderr.count("does not govern this consumer") == 1
    assert "keeps its offsets" in done.stderr


def test_what_a_consumers_own_options_get_wrong_is_thrown_as_kafka_throws_it(run: Run) -> None:
    done = run("auto.offset.reset.latest.max.age", "soon", env={"TIDEGATE_AGENT": "1"})
    assert done.returncode != 0
    assert "ConfigException: auto.offset.reset.latest.max.age must be" in done.stderr
