"""How what became of mutants is judged and told; mutmut itself is not needed for that."""

from __future__ import annotations

import pytest

from support.mutants import ACCEPTED, Mutant, mutant, outcome, page, reasons, statuses

NAME = "tidegate.reset.order.xǁOrderǁfirst__mutmut_3"
BEFORE = "    def function(self):\n        a = 1\n        return self.x < a\n"
AFTER = "    def function(self):\n        a = 1\n        return self.x <= a\n"
FOUND = Mutant(NAME, "return self.x < a", "return self.x <= a")


def test_a_mutant_has_the_lines_that_differ() -> None:
    assert mutant(NAME, BEFORE, AFTER) == FOUND


@pytest.mark.parametrize("words", ["'XXnobody reads itXX'", "'NOBODY READS IT'"])
def test_changes_of_the_words_of_a_message_are_not_mutants(words: str) -> None:
    before, after = (f"def function():\n    raise ValueError({text})\n" for text in ("'nobody reads it'", words))
    assert mutant(NAME, before, after) is None


def test_changes_of_a_log_line_are_not_mutants() -> None:
    before, after = (f"def function(a):\n    _log.info({text})\n" for text in ("'%s', a", "'%s', None"))
    assert mutant(NAME, before, after) is None


def test_a_key_is_more_than_words() -> None:
    before, after = (f"def function(a):\n    return a[{text}]\n" for text in ("'offset'", "'OFFSET'"))
    assert mutant(NAME, before, after) is not None


@pytest.mark.parametrize(
    ("name", "function"),
    [
        (NAME, "tidegate.reset.order.Order.first"),
        ("tidegate.control.records.x__key_of__mutmut_1", "tidegate.control.records._key_of"),
        ("tidegate.control.records.xǁKeyǁ__str____mutmut_1", "tidegate.control.records.Key.__str__"),
    ],
)
def test_its_function_is_named_as_in_the_source(name: str, function: str) -> None:
    assert Mutant(name, "", "").function == function


def test_results_are_read_from_what_mutmut_prints() -> None:
    printed = f"some head: 3\n    {NAME}: survived\n    tidegate.reset.plan.x_f__mutmut_1: no tests\n"
    assert statuses(printed) == {NAME: "survived", "tidegate.reset.plan.x_f__mutmut_1": "no tests"}


def test_what_survives_with_a_reason_is_accepted_and_all_else_is_missed() -> None:
    other = Mutant("tidegate.pause.step.x_f__mutmut_1", "a", "b")
    untested = Mutant("tidegate.pause.step.x_g__mutmut_1", "a", "b")
    slow = Mutant("tidegate.pause.step.x_h__mutmut_1", "a", "b")
    status = {NAME: "survived", other.name: "killed", untested.name: "no tests", slow.name: "timeout"}
    known = {(FOUND.function, FOUND.was, FOUND.becomes): "x is never a"}
    result = outcome([FOUND, other, untested, slow], status, known)
    assert (list(result.killed), list(result.missed)) == ([other, slow], [untested])
    assert list(result.accepted) == [(FOUND, "x is never a")]
    assert not result.is_good


def test_a_mutant_that_was_not_tried_is_no_success() -> None:
    with pytest.raises(ValueError, match="not tried"):
        outcome([FOUND], {}, {})


def test_the_page_lists_what_was_not_noticed_with_its_change() -> None:
    told = page(outcome([FOUND], {NAME: "survived"}, {}), "2026-11-28, abc, seed 1")
    assert "| reset | 1 | 0 | 0 | 1 |" in told
    assert "| `` tidegate.reset.order.Order.first `` | `` return self.x < a `` | `` return self.x <= a `` |" in told


def test_a_reason_names_the_change_that_it_is_for() -> None:
    with pytest.raises(ValueError, match="reason"):
        reasons('[[mutant]]\nfunction = "f"\nwas = "a"\nbecomes = "b"\n')
    assert all(reasons(ACCEPTED.read_text()).values())
