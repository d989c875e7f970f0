"""The command line of ``tidegate groups``."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tidegate.cli.errors import UsageError
from tidegate.cli.options import Action, Options, Scenario, TopicArgument, View, parse_options, parse_topic

SERVER = ["--bootstrap-server", "kafka:9092"]


def _parse(text: str) -> Options:
    return parse_options([*SERVER, *text.split()])


def test_a_pause_has_all_it_needs() -> None:
    options = _parse(
        "--group g --group h --topic t:0,1 --topic=u --pause --reason why --drain-timeout 90s --control-topic __c "
        "--ack-topic __a"
    )

    assert (options.action, options.groups) == (Action.PAUSE, ("g", "h"))
    assert options.topics == (TopicArgument("t", (0, 1)), TopicArgument("u"))
    assert (options.reason, options.drain_timeout, options.control_topic) == ("why", timedelta(seconds=90), "__c")
    assert options.ack_topic == "__a"
    assert options.timeout_ms is None


def test_a_reset_has_its_scenario_with_its_value() -> None:
    options = _parse(
        "--group g --topic t --reset-offsets --shift-by -3 --execute --in-flight 3s --max-standstill 1m --timeout 7000"
    )

    assert (options.scenario, options.scenario_value, options.execute) == (Scenario.SHIFT_BY, "-3", True)
    assert (options.in_flight, options.max_standstill) == (timedelta(seconds=3), timedelta(minutes=1))
    assert (options.timeout_ms, options.warnings) == (7000, ())


def test_an_offset_of_zero_is_a_scenario() -> None:
    assert _parse("--group g --topic t --reset-offsets --to-offset 0 --dry-run").scenario is Scenario.TO_OFFSET


def test_views_and_filters_are_told_apart() -> None:
    assert _parse("--describe --group g").view is View.OFFSETS
    assert _parse("--describe --group g --state --verbose").view is View.STATE
    listed = _parse("--list --state stable --type")
    assert (listed.listed_state, listed.listed_type) == ("stable", "")
    assert _parse("--list").listed_state is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "exactly one action"),
        ("--list --pause --group g --topic t", "exactly one action"),
        ("--pause --topic t", r"Option \[pause\] takes one of these options: \[all-groups\], \[group\]"),
        ("--pause --group g", "--all-topics, --topic"),
        ("--resume --group g", "--all-topics, --topic"),
        ("--pause --group g --topic t --all-topics", "can't be used with"),
        ("--paused-partitions --group g --topic t", "can't be used with"),
        ("--paused-partitions", "takes one of these options"),
        ("--describe --group g --type", "unavailable"),
        ("--list --members", "unavailable"),
        ("--list --timeout soon", "Cannot parse argument 'soon' of option timeout"),
        ("--pause --group g --topic t --drain-timeout 30", "--drain-timeout 30: must be a duration"),
        ("--release-all", "takes one of these options"),
        ("--resume --group g --all-topics --holder x", "can't be used with"),
        ("--release-all --group g --resume", "exactly one action"),
        ("--release-all --group g --execute --dry-run", r"\[release-all\] only accepts one of"),
        ("--list --bogus", "bogus"),
    ],
)
def test_what_does_not_go_together_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        _parse(text)


def test_servers_are_required() -> None:
    with pytest.raises(UsageError, match="bootstrap-server"):
        parse_options(["--list"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("orders", TopicArgument("orders")),
        ("orders:0", TopicArgument("orders", (0,))),
        ("orders:2,0,2", TopicArgument("orders", (2, 0))),
        ("orders:1,", TopicArgument("orders", (1,))),
    ],
)
def test_topics_are_parsed_as_the_tool_does(text: str, expected: TopicArgument) -> None:
    assert parse_topic(text) == expected


@pytest.mark.parametrize(
    "text", ["orders:", "a:b:c", "orders:x", "orders:-1", "orders:1,,2", "orders: 1", "orders:99999999999"]
)
def test_other_topics_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="Invalid"):
        parse_topic(text)
