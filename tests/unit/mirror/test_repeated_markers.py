"""A request for markers that is carried out twice: what it can do, and what it cannot."""

from __future__ import annotations

import itertools

import pytest

from support.mirror.target_broker import TargetBroker
from support.mirror.written import batch, marker, rows
from tidegate.mirror.batches import read_batches
from tidegate.mirror.model import Action, Answer, Append, Appended, Done, ReadSource, ReadTail, WriteMarkers
from tidegate.mirror.source import SourceRead
from tidegate.mirror.states import Comparing, Mirror, Ready, Stopped
from tidegate.mirror.transitions import after

OURS = 100
BEFORE = dict(enumerate(rows(2)))


def log(gap: int) -> bytes:
    """Data, a gap and data."""
    between = b"".join(marker(2 + n, 9, 0, commit=True) for n in range(gap))
    return batch(0, BEFORE, 2) + between + batch(2 + gap, BEFORE, 2)


class Copying:
    """A log that is copied step by step."""

    def __init__(self, gap: int) -> None:
        self.target = TargetBroker()
        self.mirror = Mirror((OURS,))
        self.data, self.end = log(gap)[: -len(batch(0, BEFORE, 2))], gap + 2
        self.requests: list[WriteMarkers] = []

    def step(self) -> bool:
        """Whether it goes on."""
        action = self.mirror.action()
        if action is None:
            return False
        before, self.mirror = self.mirror, after(self.mirror, action, self._answer(action))
        return self.mirror != before

    def _answer(self, action: Action) -> Answer:
        match action:
            case ReadTail(window):
                return self.target.tail(window)
            case ReadSource(offset):
                left = b"".join(one.data for one in read_batches(self.data) if one.next_offset > offset)
                return SourceRead(offset, 0, self.end, data=left)
            case Append(batches):
                return Appended(tuple(self.target.produce(data) for data in batches))
            case WriteMarkers():
                self.requests.append(action)
                self.carry_out(action)
                return Done()
            case _:
                raise AssertionError(action)

    def carry_out(self, request: WriteMarkers) -> int:
        """How many were written."""
        return sum(self.target.write_marker(request.producer_id, request.epoch) for _ in range(request.count))


def requests_of(gap: int) -> int:
    copying = Copying(gap)
    while copying.step():
        pass
    assert copying.target.end == copying.end
    return len(copying.requests)


CASES = [(gap, which) for gap in (1, 2, 3, 5, 8, 30, 300) for which in range(requests_of(gap))]


@pytest.mark.parametrize(("gap", "which"), CASES)
def test_twice_at_once_only_the_last_marker_goes_too_far(gap: int, which: int) -> None:
    copying = Copying(gap)
    repeated = False
    while copying.step():
        if len(copying.requests) == which + 1 and not repeated:
            repeated = True
            assert copying.carry_out(copying.requests[which]) == copying.requests[which].count

    last = which == requests_of(gap) - 1
    assert isinstance(copying.mirror.state, Comparing if last else Ready)
    assert copying.target.end == copying.end + last


@pytest.mark.parametrize("gap", [1, 2, 5, 30])
def test_what_comes_after_the_next_data_is_refused(gap: int) -> None:
    copying = Copying(gap)
    while copying.step():
        pass
    copying.data, copying.end = log(gap), gap + 4
    while copying.step():
        pass

    assert copying.target.end == gap + 4
    assert [copying.carry_out(request) for request in copying.requests] == [0] * len(copying.requests)


def test_a_target_that_went_too_far_is_left_alone_until_the_source_tells() -> None:
    copying = Copying(1)
    for _ in itertools.takewhile(lambda _: not copying.requests, itertools.count()):
        copying.step()
    copying.carry_out(copying.requests[0])
    while copying.step():
        pass
    assert isinstance(copying.mirror.state, Comparing)
    appends = copying.target.appends

    copying.data, copying.end = log(1), 5
    while copying.step():
        pass

    assert isinstance(copying.mirror.state, Stopped)
    assert copying.mirror.state.drifted
    assert copying.target.appends == appends
