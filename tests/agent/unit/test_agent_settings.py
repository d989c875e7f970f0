"""What the environment says to the agent."""

import pytest

from tidegate_agent.settings import Settings, SettingsError, is_on, read_settings


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
    }
    assert is_on(environ)
    found = read_settings(environ)
    assert found == Settings("ops.gates", open_unread=True, unreachable_after_s=2.5, log_level="INFO")
    assert found.acks_topic == "ops.gates_acks"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TIDEGATE_ON_UNREACHABLE", "maybe"),
        ("TIDEGATE_UNREACHABLE_AFTER_S", "soon"),
        ("TIDEGATE_UNREACHABLE_AFTER_S", "-1"),
        ("TIDEGATE_UNREACHABLE_AFTER_S", "nan"),
        ("TIDEGATE_LOG", "loud"),
    ],
)
def test_a_value_that_means_nothing_is_refused_by_its_name(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name):
        read_settings({name: value})


def test_an_agent_that_is_neither_on_nor_off_is_refused() -> None:
    with pytest.raises(SettingsError, match="TIDEGATE_AGENT"):
        is_on({"TIDEGATE_AGENT": "perhaps"})
