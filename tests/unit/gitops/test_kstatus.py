"""kstatus, by which Flux and ``helm --wait`` wait, reads every state of our resources as it is meant."""

from __future__ import annotations

import pytest

from support.kstatus import KStatus, kstatus_of
from support.written_resources import Written, written
from tidegate.resources.pause import PausePhase
from tidegate.resources.reset import ResetPhase


@pytest.mark.parametrize("resource", written(), ids=lambda each: f"{each.kind}-{each.name}")
def test_a_state_is_read_as_it_is_meant(resource: Written) -> None:
    assert kstatus_of(resource.body) is resource.kstatus


def test_every_phase_is_among_the_states() -> None:
    pauses = {each.body["status"].get("phase") for each in written() if each.kind == "ConsumerGroupPause"}
    resets = {each.body["status"].get("phase") for each in written() if each.kind == "OffsetReset"}

    assert pauses - {None} == {phase.value for phase in PausePhase}
    assert resets - {None} == {phase.value for phase in ResetPhase}


def test_only_what_is_ready_counts_as_current() -> None:
    for each in written():
        ready = next((c for c in each.body["status"].get("conditions", ()) if c["type"] == "Ready"), None)
        if kstatus_of(each.body) is KStatus.CURRENT:
            assert ready is not None, each.name
            assert ready["status"] == "True", each.name
            assert ready["observedGeneration"] == each.body["metadata"]["generation"], each.name
