"""What the job that compares two clusters says where records can't be read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

from tidegate.kafka_client.settings import BadConnection
from tidegate.reset.planning.refusals import PlanRefused
from tidegate.spark import entry

ARGUMENTS = ["--bootstrap-servers", "here:9092", "--other-bootstrap-servers", "there:9092", "--topic", "orders"]


@pytest.mark.parametrize(
    "failure",
    [
        PySparkException("an executor was lost"),
        BadConnection("no such file"),
        PlanRefused("SparkUnavailable", "no jar"),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_what_could_not_be_compared_is_not_said_to_differ(
    failure: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = []

    def compared(*_: Any) -> Any:
        raise failure

    monkeypatch.setattr(entry, "find_pairs", lambda *_: ())
    monkeypatch.setattr(entry, "start_session", lambda _: SimpleNamespace(stop=lambda: ended.append(True)))
    monkeypatch.setattr(entry, "compare_logs", compared)

    assert entry.parity(ARGUMENTS) == 2

    said = capsys.readouterr()
    assert said.out == ""
    assert str(getattr(failure, "message", failure)) in said.err
    assert ended == [True]
