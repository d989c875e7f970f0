"""What a failed write says ends up in conditions: it must not change with who happened to share the write."""

import pytest

from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import Refused, Unavailable
from tidegate.kafka_client.control_writer import ControlWriter
from tidegate.kafka_client.fenced_writer import FencedWriter, WriterProcess, _Taken
from tidegate.kafka_client.transaction import Producer
from tidegate.kafka_client.wire import Wire

CONNECTION = Connection("127.0.0.1:1")
ALONE, SHARED = {b"a": b""}, {b"a": b"", b"b": b""}


def test_an_operator_s_write_says_the_same_whoever_shared_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_leader(_writer: FencedWriter, what: str) -> int:
        raise Refused(f"{what}: it has 2 partitions, not one")

    monkeypatch.setattr(FencedWriter, "_leader", no_leader)
    writer = FencedWriter(Wire(CONNECTION), "control", "5f", WriterProcess())
    writer._known = _Taken(producer=Producer(1, 0))
    said = []
    for records in (ALONE, SHARED):
        with pytest.raises(Refused) as refused:
            writer.write(records)
        said.append(str(refused.value))
    assert said == ["write to topic control: it has 2 partitions, not one"] * 2


def test_a_run_s_write_says_the_same_whoever_shared_it() -> None:
    writer = ControlWriter(CONNECTION, ("control", "acks"), Wire(CONNECTION))
    writer.close()
    said = []
    for records in (ALONE, SHARED):
        with pytest.raises(Unavailable) as closed:
            writer.write("control", records)
        said.append(str(closed.value))
    assert said == ["write to topic control: the connection was closed"] * 2
