"""Models that were read just now are not read again."""

from __future__ import annotations

from tidegate.resources.base import read_status
from tidegate.resources.pause import PauseStatus
from tidegate.resources.policy import PolicyStatus


def test_the_same_object_is_read_once() -> None:
    body = {"status": {"observedGeneration": 3}}

    assert read_status(PauseStatus, body) is read_status(PauseStatus, body)


def test_an_equal_object_is_another_one() -> None:
    one, another = {"status": {"observedGeneration": 3}}, {"status": {"observedGeneration": 3}}

    assert read_status(PauseStatus, one) is not read_status(PauseStatus, another)
    assert read_status(PauseStatus, one) == read_status(PauseStatus, another)


def test_the_same_object_as_another_model_is_that_model() -> None:
    body = {"status": {"observedGeneration": 3}}

    assert isinstance(read_status(PauseStatus, body), PauseStatus)
    assert isinstance(read_status(PolicyStatus, body), PolicyStatus)


def test_thousands_of_objects_are_each_read_as_what_they_are() -> None:
    bodies = [{"status": {"observedGeneration": n}} for n in range(2_000)]

    for _ in range(2):
        assert [read_status(PauseStatus, body).observed_generation for body in bodies] == list(range(2_000))
