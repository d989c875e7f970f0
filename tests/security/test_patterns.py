"""No pattern that users' text is matched against can be made to take exponential time.

The API server's matcher is linear; Python's tries each way in which a text can match, one after the other. So where a
part of a pattern that may repeat matches one text in two ways, a text of n such parts that fails at its end takes 2^n
steps. Whether there is such a part is decided on the pattern's automaton (Weber and Seidl, "On the degree of ambiguity
of finite automata", criterion EDA). Larger counts are taken for unbounded ones, which can only find more.
"""

from __future__ import annotations

import ast
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from re import _constants as opcodes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest
import yaml

from tidegate.resources.base import InvalidResource, parse_spec
from tidegate.resources.connection import KafkaConnectionSpec

CRDS = Path(__file__).resolve().parents[2] / "crds"
COUNTED = 8
"""Up to here repetitions are told apart by their number."""
LETTERS = [chr(code) for code in (*range(32, 127), 10, 0xE4)]


class Automaton:
    """Of a pattern: states, steps without a letter, and steps by a set of letters. ``finals`` follow from `end`."""

    def __init__(self, pattern: str) -> None:
        self.free: dict[int, list[int]] = defaultdict(list)
        self.by: list[tuple[int, frozenset[str], int]] = []
        self._states = 0
        self.start = self.new()
        self.end = self._add(list(parser.parse(pattern)), self.start)

    def new(self) -> int:
        self._states += 1
        return self._states

    def _free(self, at: int) -> int:
        """A new state that is reached from ``at`` without a letter."""
        new = self.new()
        self.free[at].append(new)
        return new

    def _add(self, parsed: Iterable[tuple[Any, Any]], at: int) -> int:
        for code, argument in parsed:
            at = self._one(code, argument, at)
        return at

    def _one(self, code: Any, argument: Any, at: int) -> int:
        after = self.new()
        if code is opcodes.SUBPATTERN:
            self.free[self._add(argument[-1], at)].append(after)
        elif code is opcodes.BRANCH:
            for branch in argument[1]:
                begin = self.new()
                self.free[at].append(begin)
                self.free[self._add(branch, begin)].append(after)
        elif code in (opcodes.MAX_REPEAT, opcodes.MIN_REPEAT):
            least, most, body = argument
            counted = most if most <= COUNTED else min(least, 2)
            at = self._free(at)  # what is before may be left out, and this may lead back here
            for number in range(counted):
                if number >= least:
                    self.free[at].append(after)
                at = self._free(self._add(body, at))
            self.free[at].append(after)
            if most > COUNTED:
                begin = self.new()
                self.free[at].append(begin)
                self.free[self._add(body, begin)].append(at)
        elif code in (opcodes.AT, opcodes.ASSERT, opcodes.ASSERT_NOT):  # without them it can only match more
            self.free[at].append(after)
        else:
            self.by.append((at, letters_of(code, argument), after))
        return after

    def ways(self, state: int) -> dict[int, int]:
        """The states that are reached without a letter, and in how many ways, without going in circles."""
        found: dict[int, int] = defaultdict(int)
        waiting: list[tuple[int, frozenset[int]]] = [(state, frozenset([state]))]
        while waiting:
            here, seen = waiting.pop()
            found[here] += 1
            waiting += [(each, seen | {each}) for each in self.free[here] if each not in seen]
        return found

    def repeats_in_two_ways(self) -> bool:
        """Whether some state is reached again from itself in two ways by one text."""
        steps = defaultdict(list)
        for at, letters, after in self.by:
            steps[at].append((letters, after))
        # Steps by one letter each, and those that can be taken in more than one way.
        moves: dict[int, list[tuple[frozenset[str], int]]] = {}
        twice: set[tuple[int, int]] = set()
        for state in {self.start, *(after for _, _, after in self.by)}:
            moves[state] = []
            for reached, ways in self.ways(state).items():
                for letters, after in steps[reached]:
                    moves[state].append((letters, after))
                    if ways > 1:
                        twice.add((state, after))
        forward = {state: {after for _, after in found} for state, found in moves.items()}
        if any(state in reachable(forward, [after]) for state, after in twice):
            return True
        pairs: dict[tuple[int, int], set[tuple[int, int]]] = {}
        for one in moves:
            for other in moves:
                pairs[one, other] = {(a, b) for x, a in moves[one] for y, b in moves[other] if x & y}
        for state in moves:
            different = [pair for pair in reachable(pairs, [(state, state)]) if pair[0] != pair[1]]
            if different and (state, state) in reachable(pairs, different):
                return True
        return False


def reachable(edges: dict[Any, set[Any]], begin: Iterable[Any]) -> set[Any]:
    """What can be reached by one step or more from what ``begin`` has, which is in it too."""
    found, waiting = set(begin), list(begin)
    while waiting:
        for each in edges.get(waiting.pop(), ()):
            if each not in found:
                found.add(each)
                waiting.append(each)
    return found


def letters_of(code: Any, argument: Any) -> frozenset[str]:
    """Those of `LETTERS` that one element of a pattern matches."""
    if code is opcodes.ANY:
        return frozenset(LETTERS)
    if code is opcodes.LITERAL:
        return frozenset([chr(argument)])
    if code is opcodes.NOT_LITERAL:
        return frozenset(LETTERS) - {chr(argument)}
    assert code is opcodes.IN, f"{code}: not known to this test"
    found: set[str] = set()
    negated = False
    for kind, value in argument:
        if kind is opcodes.NEGATE:
            negated = True
        elif kind is opcodes.LITERAL:
            found.add(chr(value))
        elif kind is opcodes.RANGE:
            found |= {letter for letter in LETTERS if value[0] <= ord(letter) <= value[1]}
        else:
            assert kind is opcodes.CATEGORY
            name = {"CATEGORY_DIGIT": r"\d", "CATEGORY_WORD": r"\w", "CATEGORY_SPACE": r"\s"}[str(value)]
            found |= {letter for letter in LETTERS if re.fullmatch(name, letter)}
    return frozenset(LETTERS) - found if negated else frozenset(found)


def patterns(node: Any) -> Iterator[str]:
    """All that a CRD matches text against, in its schema and in its rules."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "pattern":
                yield value
            elif key == "rule":
                for raw, text in re.findall(r"matches\((r?)'((?:[^'\\]|\\.)*)'\)", value):
                    yield text if raw else text.replace("\\\\", "\\")
            else:
                yield from patterns(value)
    elif isinstance(node, list):
        for value in node:
            yield from patterns(value)


def of_the_operator(folder: Path) -> Iterator[str]:
    """All patterns that its code has as they are."""
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                module, first = node.func.value, node.args[0]
                if isinstance(module, ast.Name) and module.id == "re" and isinstance(first, ast.Constant):
                    yield str(first.value)


OPERATOR = CRDS.parent / "operator"
EVERY = sorted(
    {found for path in CRDS.glob("*.yaml") for found in patterns(yaml.safe_load(path.read_text()))}
    | set(of_the_operator(OPERATOR))
)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("(a+)+", True),
        ("(a(a)?)*", True),
        ("(a(b{0,9})?,)*", True),
        ("(a|ab|b)*", True),
        ("(ab|(a)b)*", True),
        ("(ab?,)*", False),
        ("[a-z]+(-[a-z]+)*", False),
        ("a*a*", False),
        ("([1-9][0-9]{0,3}|[1-5][0-9]{4}):", False),
    ],
)
def test_what_repeats_in_two_ways_is_found(pattern: str, *, expected: bool) -> None:
    assert Automaton(pattern).repeats_in_two_ways() is expected


def test_patterns_are_found_in_the_crds_and_in_the_code() -> None:
    assert len(EVERY) > 60


@pytest.mark.parametrize("pattern", EVERY)
def test_no_pattern_of_a_resource_takes_exponential_time(pattern: str) -> None:
    assert not Automaton(pattern).repeats_in_two_ways()


def test_a_list_of_servers_that_is_wrong_at_its_end_is_refused_at_once() -> None:
    before = time.process_time()

    with pytest.raises(InvalidResource, match="must be host:port"):
        parse_spec(KafkaConnectionSpec, {"spec": {"bootstrapServers": "a:1," * 25 + "!"}})

    assert time.process_time() - before < 2
