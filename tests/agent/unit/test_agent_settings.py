"""What the environment says to the agent."""

import pytest

from tidegate_agent.settings import Settings, SettingsError, is_on, is_strict, read_settings
from tidegate_agent.start import Options, Start


def test_without_a_word_the_agent_is_off_and_everything_has_its_default() -> None:
    assert not is_on({})
    assert read_settings({}) == Settings("__tidegate", open_unread=False, unreachable_after_s=30.0, log_level=None)


def test_what_is_said_is_taken() -> None:
    environ = {
        "TIDEGATE_AGENT": "1",
        "TIDEGATE_CONTROL_TOPIC": "ops.gates",
        "TIDEGATE_ON_UNREACHABLE": "Open",
        "TIDEGATE_UNREACHABLE_AFTER_S": "2.5",
        "TIDEGATE_LOG": "info",
        "TIDEGATE_LATEST_MAX_AGE": " 3600000 ",
        "TIDEGATE_NEW_PARTITIONS": "Earliest",
    }
    assert is_on(environ)
    found = read_settings(environ)
    options = Options(3_600_000, Start.EARLIEST)
    assert found == Settings("ops.gates", True, 2.5, new_partitions=options, log_level="INFO")
    assert found.acks_topic == "ops.gates_acks"
    assert read_settings({"TIDEGATE_ACK_TOPIC": " ops.acks "}).acks_topic == "ops.acks"
    assert read_settings({"TIDEGATE_ACK_TOPIC": " "}).acks_topic == "__tidegate_acks"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TIDEGATE_ON_UNREACHABLE", "maybe"),
        ("TIDEGATE_UNREACHABLE_AFTER_S", "soon"),
        ("TIDEGATE_UNREACHABLE_AFTER_S", "-1"),
        ("TIDEGATE_UNREACHABLE_AFTER_S", "nan"),
        ("TIDEGATE_UNREACHABLE_AFTER_S", "1_0"),
        ("TIDEGATE_LOG", "loud"),
        ("TIDEGATE_STRICT", "very"),
    ],
)
def test_a_value_that_means_nothing_is_refused_by_its_name(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name):
        read_settings({name: value})


def test_an_agent_that_is_neither_on_nor_off_is_refused() -> None:
    with pytest.raises(SettingsError, match="TIDEGATE_AGENT"):
        is_on({"TIDEGATE_AGENT": "perhaps"})


@pytest.mark.parametrize(("name", "value"), [("TIDEGATE_LATEST_MAX_AGE", "-1"), ("TIDEGATE_NEW_PARTITIONS", "none")])
def test_what_turns_the_rule_for_new_partitions_off_is_no_mistake(name: str, value: str) -> None:
    found = read_settings({name: value})
    assert found.complaints == ()
    assert found.new_partitions in (Options(), Options(latest_max_age_ms=-1))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TIDEGATE_LATEST_MAX_AGE", "-2"),
        ("TIDEGATE_LATEST_MAX_AGE", "1h"),
        ("TIDEGATE_LATEST_MAX_AGE", "1.5"),
        ("TIDEGATE_LATEST_MAX_AGE", "1_000"),
        ("TIDEGATE_LATEST_MAX_AGE", "٣"),
        ("TIDEGATE_LATEST_MAX_AGE", str(2**63)),
        ("TIDEGATE_NEW_PARTITIONS", "newest"),
        ("TIDEGATE_NEW_PARTITIONS", "by_duration:PT1H"),
    ],
)
def test_a_mistake_about_new_partitions_is_said_and_changes_nothing_else(name: str, value: str) -> None:
    found = read_settings({name: value, "TIDEGATE_CONTROL_TOPIC": "ops.gates"})
    assert found.new_partitions == Options()
    assert found.control_topic == "ops.gates"
    [complaint] = found.complaints
    assert complaint.startswith(name)
    assert repr(value) in complaint


@pytest.mark.parametrize(("value", "strict"), [("true", True), (" On ", True), ("false", False), ("", False)])
def test_a_strict_process_refuses_what_is_otherwise_said_and_passed_over(value: str, strict: bool) -> None:
    environ = {"TIDEGATE_STRICT": value, "TIDEGATE_LATEST_MAX_AGE": "1h", "TIDEGATE_NEW_PARTITIONS": "newest"}
    assert is_strict(environ) is strict
    if not strict:
        assert len(read_settings(environ).complaints) == 2
        return

    with pytest.raises(SettingsError) as refused:
        read_settings(environ)

    assert str(refused.value) == (
        "TIDEGATE_LATEST_MAX_AGE must be a whole number of milliseconds, or -1 for off, not '1h'; "
        "TIDEGATE_NEW_PARTITIONS must be earliest or latest, not 'newest', or none"
    )


def test_a_process_is_not_strict_by_a_value_that_means_nothing() -> None:
    assert not is_strict({"TIDEGATE_STRICT": "very"})


def test_what_is_said_for_one_group_is_for_no_other() -> None:
    settings = read_settings({"TIDEGATE_GROUP": "payments", "TIDEGATE_LATEST_MAX_AGE": "5"})

    assert settings.new_partitions_of("payments").latest_max_age_ms == 5
    assert settings.new_partitions_of("refunds").latest_max_age_ms is None
    assert read_settings({"TIDEGATE_LATEST_MAX_AGE": "5"}).new_partitions_of("refunds").latest_max_age_ms == 5
