"""``tidegate env`` on a file."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tidegate.cli.main import BAD_USAGE, main

RESOURCES = """\
apiVersion: tidegate.io/v1alpha1
kind: KafkaConnection
metadata: {name: prod}
spec: {bootstrapServers: "kafka:9092", controlTopic: {name: __gates}}
---
apiVersion: tidegate.io/v1alpha1
kind: OffsetResetPolicy
metadata: {name: keep}
spec:
  connectionRef: {name: prod}
  group: payments & refunds
  latest: {maxAge: 1h}
  consumers: {selector: {matchLabels: {app: payments}}}
"""


@pytest.fixture
def resources(tmp_path: Path) -> str:
    path = tmp_path / "resources.yaml"
    path.write_text(RESOURCES)
    return str(path)


def test_lines_for_a_shell(resources: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "keep", "-f", resources]) == 0

    told = capsys.readouterr()
    assert told.out.splitlines() == [
        "TIDEGATE_AGENT=1",
        "TIDEGATE_CONTROL_TOPIC=__gates",
        "TIDEGATE_GROUP='payments & refunds'",
        "TIDEGATE_LATEST_MAX_AGE=3600000",
    ]
    assert told.err == ""


def test_the_env_of_a_container(resources: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "keep", "--filename", resources, "--output", "yaml"]) == 0

    assert {"name": "TIDEGATE_LATEST_MAX_AGE", "value": "3600000"} in yaml.safe_load(capsys.readouterr().out)


def test_a_dollar_is_one_for_a_shell_and_two_for_kubernetes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "resources.yaml"
    path.write_text(RESOURCES.replace("payments & refunds", "a$(b)"))

    assert main(["env", "keep", "-f", str(path)]) == 0
    assert "TIDEGATE_GROUP='a$(b)'" in capsys.readouterr().out.splitlines()
    assert main(["env", "keep", "-f", str(path), "--output", "yaml"]) == 0
    assert {"name": "TIDEGATE_GROUP", "value": "a$$(b)"} in yaml.safe_load(capsys.readouterr().out)


def test_the_ack_topic_is_told_where_the_connection_names_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "resources.yaml"
    path.write_text(RESOURCES.replace("{name: __gates}", "{name: __gates, ackTopic: __acks.payments}"))

    assert main(["env", "keep", "-f", str(path)]) == 0

    assert "TIDEGATE_ACK_TOPIC=__acks.payments" in capsys.readouterr().out.splitlines()


def test_what_is_not_there_is_named(resources: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(RESOURCES.replace("1h", "soon"))

    assert main(["env", "other", "-f", resources]) == 1
    assert main(["env", "keep", "-f", str(bad)]) == 1
    assert main(["env", "keep", "-f", str(tmp_path / "none.yaml")]) == 1
    assert main(["env"]) == BAD_USAGE

    told = capsys.readouterr().err
    assert "has no OffsetResetPolicy other" in told
    assert "spec.latest.maxAge" in told
    assert "none.yaml cannot be read" in told


def test_the_names_that_a_framework_reads(resources: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "keep", "-f", resources, "--format", "Connect"]) == 0

    assert capsys.readouterr().out == (
        "CONNECT_CONSUMER_AUTO_OFFSET_RESET_LATEST_MAX_AGE=3600000\n"
        "CONNECT_CONSUMER_AUTO_OFFSET_RESET_NEW_PARTITIONS=earliest\n"
    )


def test_a_policy_for_many_groups_has_no_environment_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many = tmp_path / "many.yaml"
    text = RESOURCES.replace("group: payments & refunds", 'groups: ["*"]')
    many.write_text(text.replace("  consumers: {selector: {matchLabels: {app: payments}}}\n", ""))

    assert main(["env", "keep", "-f", str(many)]) == 1

    assert "is for many groups" in capsys.readouterr().err


@pytest.mark.parametrize(
    "odd",
    [
        "kind: OffsetResetPolicy\nmetadata: [keep]",
        "kind: OffsetResetPolicy\nmetadata:",
        "kind: KafkaConnection\nmetadata: prod",
    ],
)
def test_what_is_no_resource_is_passed_over(odd: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.yaml").write_text(f"{odd}\n---\n{RESOURCES}")

    assert main(["env", "keep", "-f", str(tmp_path / "r.yaml")]) == 0
    assert "TIDEGATE_CONTROL_TOPIC=__gates" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("spec", ["", "spec: 7", "spec: {connectionRef: prod, group: g}"])
def test_a_policy_that_is_none_is_refused(spec: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.yaml").write_text(f"kind: OffsetResetPolicy\nmetadata: {{name: keep}}\n{spec}\n")

    assert main(["env", "keep", "-f", str(tmp_path / "r.yaml")]) == 1
    assert capsys.readouterr().err.startswith("tidegate env: spec")


def test_topics_that_no_connection_in_the_file_names_are_said_to_be_guessed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A consumer that reads another control topic obeys no pause, and nothing tells it so."""
    path = tmp_path / "policy.yaml"
    path.write_text(RESOURCES.partition("---")[2])

    assert main(["env", "keep", "-f", str(path)]) == 0

    told = capsys.readouterr()
    assert "TIDEGATE_CONTROL_TOPIC=__tidegate\n" in told.out
    assert f"{path} has no KafkaConnection prod, so the names of its topics are the default ones" in told.err


def test_the_connection_is_that_of_the_namespace_which_the_policy_means(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, _, policy = RESOURCES.partition("---")
    theirs = other.replace("{name: prod}", "{name: prod, namespace: theirs}").replace("__gates", "__theirs")
    ours = other.replace("{name: prod}", "{name: prod, namespace: ours}")
    path = tmp_path / "resources.yaml"
    for meant, topic in (("{name: prod}", "__gates"), ("{name: prod, namespace: theirs}", "__theirs")):
        own = policy.replace("{name: keep}", "{name: keep, namespace: ours}").replace("{name: prod}", meant)
        path.write_text("---\n".join((theirs, ours, own)))

        assert main(["env", "keep", "-f", str(path)]) == 0

        told = capsys.readouterr()
        assert f"TIDEGATE_CONTROL_TOPIC={topic}\n" in told.out
        assert told.err == ""
