"""The leader of two replicas is killed or frozen in each phase of twenty resets and twenty pauses, with a real API
server, a real broker and live consumers: nothing is done twice, no hold is lost, and no status flaps.

`make bench NAME=takeover` plays the same and tells how long takeovers take.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from kubernetes import client as kube

from devstack import ApiServer
from support.takeover.page import summary, table, takeovers
from support.takeover.plan import EPISODES, Fault
from support.takeover.stage import stage
from support.takeover.story import Story
from support.takeover.verdict import complaints

LONGEST_S = 15.0
"""From the fault until another replica has the Lease."""


@pytest.mark.nightly
def test_nothing_is_done_twice_and_nothing_is_lost_whenever_a_leader_ends_or_freezes(
    apiserver: ApiServer, kube_client: kube.ApiClient, crds_installed: None, namespace: str, tmp_path: Path
) -> None:
    with stage(apiserver, kube_client, namespace, tmp_path) as made:
        story = Story(made)
        story.play()
        wrong = complaints(story)
        found = takeovers(story.struck, made.replicas.writes())
        for log in made.replicas.logs() if wrong else ():
            print(f"--- {log}\n" + "\n".join(log.read_text().splitlines()[-40:]))
    print(summary(found), table(found), sep="\n\n")

    assert not wrong, "\n".join(wrong)
    assert len(story.resets) >= 20
    assert len(story.pauses) >= 20
    faults = Counter(struck.episode.fault for struck in story.struck)
    assert min(faults[fault] for fault in Fault) >= len(EPISODES) // 2
    missed = {(e.fault, e.moment) for e in EPISODES} - {(s.episode.fault, s.hit) for s in story.struck}
    assert not missed, f"never struck in {missed}"
    assert max(each.lease_s for each in found) < LONGEST_S
