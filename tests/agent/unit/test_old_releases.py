"""The agent reads the control topic with the confluent-kafka that it finds. Where that is too old it stays out, or
consumers would wait for ever."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import cimpl

from tidegate_agent import inject
from tidegate_agent.adapters import confluent, kafka_python


@pytest.mark.parametrize(
    ("told", "is_used"),
    [
        (("1.9.2", 0x01090200), False),
        (("2.5.3", 0x02050300), False),
        (("2.6.0", 0x02060000), True),
        ("2.16.1", True),
        ("3.0.0rc1", True),
    ],
)
@pytest.mark.parametrize(
    ("adapter", "function", "module"), [(confluent, "install", cimpl), (kafka_python, "install_consumer", cimpl)]
)
def test_consumers_are_managed_only_with_a_release_that_tells_enough(
    adapter: object,
    function: str,
    module: object,
    told: object,
    is_used: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    installed: list[object] = []
    monkeypatch.setattr(cimpl, "version", lambda: told)
    monkeypatch.setattr(adapter, function, installed.append)

    with caplog.at_level(logging.ERROR, logger="tidegate_agent"):
        inject._install_with(adapter.__name__, function)(module)  # type: ignore[attr-defined]

    assert installed == ([module] if is_used else [])
    assert [record.message for record in caplog.records if "stays out" in record.message] == (
        []
        if is_used
        else [
            f"the agent stays out of confluent_kafka.cimpl: ImportError('confluent-kafka {told[0]} is installed, "  # type: ignore[index]
            "and 2.6 or later is needed')"
        ]
    )
