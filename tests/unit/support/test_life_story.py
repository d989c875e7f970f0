"""Stories of random sequences are drawn from their seed alone, and all of what may happen does happen."""

from __future__ import annotations

import random
from datetime import UTC, datetime

from support.life_story import Disturbance, Mishap, Pause, Reset, Target, TargetKind, draw

SEEDS = range(200)


def test_a_seed_tells_the_same_story_each_time() -> None:
    random.seed(1)
    once = [draw(seed) for seed in SEEDS]
    random.seed(2)
    assert [draw(seed) for seed in reversed(SEEDS)] == once[::-1]
    assert len({str(story).partition(":")[2] for story in once}) == len(SEEDS)


def test_everything_happens_somewhere() -> None:
    stories = [draw(seed) for seed in SEEDS]
    resets = [reset for story in stories for reset in story.resets]
    steps = [step for story in stories for step in story.steps]
    mishaps = [step.meanwhile for step in (*steps, *resets) if isinstance(step.meanwhile, Mishap)]
    assert {(s.protocol, s.assignor, s.managed) for s in stories} == {
        (protocol, assignor, managed)
        for protocol, assignor in (("classic", "range"), ("classic", "cooperative-sticky"), ("consumer", None))
        for managed in (False, True)
    }
    assert {reset.to.kind for reset in resets} == set(TargetKind)
    assert {mishap.kind for mishap in mishaps} == set(Disturbance)
    assert {reset.meanwhile is None for reset in resets} == {False, True}
    assert {reset.applied_again_h is None for reset in resets} == {False, True}
    in_pauses = [type(step.meanwhile) for step in steps if isinstance(step, Pause)]
    assert {type(None), Mishap, Reset} == set(in_pauses)


def test_no_story_asks_for_what_cannot_be() -> None:
    """Only what was reset earlier is undone, only managed consumers are paused, no KIP-848 member crashes."""
    for story in map(draw, SEEDS):
        ids = [reset.run_id for reset in story.resets]
        assert len(set(ids)) == len(ids)
        for number, reset in enumerate(story.resets):
            if reset.to.kind is TargetKind.UNDO:
                undone = story.resets[ids.index(str(reset.to.value), 0, number)]
                assert set(reset.planned) == set(reset.partitions) & set(undone.planned) != set(), story
            else:
                assert reset.planned == reset.partitions, story
        assert story.managed or not any(isinstance(step, Pause) for step in story.steps), story
        crashes = [
            step
            for step in (*story.steps, *story.resets)
            if isinstance(step.meanwhile, Mishap) and step.meanwhile.kind is Disturbance.CONSUMER_CRASHES
        ]
        assert story.protocol == "classic" or not crashes, story
        assert not crashes or story.may_read_again, story


def test_a_target_is_said_in_the_words_of_the_resource() -> None:
    now = datetime(2026, 11, 22, 20, 0, 0, 900_000, tzinfo=UTC)
    assert Target(TargetKind.TIMESTAMP, 4).words(now) == {"timestamp": "2026-11-22T19:59:56Z"}
    assert Target(TargetKind.DURATION, 3).words(now) == {"duration": "3s"}
    assert Target(TargetKind.SHIFT_BY, -20).words(now) == {"shiftBy": -20}
    assert Target(TargetKind.UNDO, "r0").words(now) == {"undo": "r0"}
    assert Target(TargetKind.LATEST).words(now) == {"latest": {}}
