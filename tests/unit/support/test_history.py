"""A history's lines: what is written is read back, and nothing else is read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.history import (
    Begin,
    Commit,
    CommitRow,
    Committed,
    End,
    History,
    HistoryError,
    Hold,
    Operation,
    Outcome,
    Ownership,
    Phase,
    Place,
    Poll,
    Process,
    Record,
    ResetBegin,
    ResetEnd,
    Send,
    Transaction,
    Untold,
    from_lines,
    in_order,
    read,
    to_lines,
    write,
)

names = st.text(max_size=8)
numbers = st.integers(0, 2**31 - 1)
offsets = st.integers(0, 2**63 - 1)
times = st.floats(0, 4e9, allow_nan=False)
partitions = st.tuples(names, numbers)
places = st.builds(Place, names, numbers, offsets)


def several(items: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(items, max_size=3).map(tuple)


maybe = st.none() | names
rows = st.builds(CommitRow, names, numbers, st.integers(-1001, 2**63 - 1), maybe)
records = st.builds(Record, names, numbers, offsets, maybe)
acked = st.builds(Send, times, names, numbers, st.just(Outcome.ACKED), offsets, maybe)
unacked = st.builds(Send, times, names, numbers, st.sampled_from([Outcome.FAILED, Outcome.UNKNOWN]), value=maybe)
operations = st.one_of(
    acked,
    unacked,
    st.builds(Poll, times, names, several(records)),
    st.builds(Commit, times, maybe, several(rows), maybe),
    st.builds(Committed, times, times, several(places)),
    st.builds(Transaction, times, names, several(places), st.sampled_from(["offsets-sent", "offsets-over"])),
    st.builds(Ownership, times, names, several(partitions), st.sampled_from(["assign", "revoke", "lost"])),
    st.builds(Process, times, maybe, several(names), st.sampled_from(["start", "stop", "kill", "freeze", "thaw"])),
    st.builds(Hold, times, several(partitions), st.sampled_from(["pause", "resume"])),
)
begins = st.builds(Begin, st.just(0.0), names, times, times, several(places), several(st.sampled_from(Untold)))
ends = st.builds(End, st.just(4e9), several(places), st.booleans())


@st.composite
def histories(draw: st.DrawFn) -> History:
    runs = draw(st.lists(names, unique=True, max_size=3))
    resets: list[Operation] = []
    for run in runs:
        began = draw(times)
        resets.append(ResetBegin(began, run, draw(several(places)), draw(several(partitions))))
        if draw(st.booleans()):
            ended = draw(st.floats(began, 4e9))
            resets.append(ResetEnd(ended, run, draw(st.sampled_from(Phase)), draw(names)))
    more = draw(st.lists(operations, max_size=6))
    return in_order([draw(begins), *resets, *more, *draw(st.lists(ends, max_size=1))])


@given(histories())
def test_what_is_written_is_read_back(history: History) -> None:
    lines = list(to_lines(history.operations))
    assert all("\n" not in line for line in lines)
    assert from_lines(lines) == history


def test_a_file_is_read_back(tmp_path: Path) -> None:
    given = in_order([Begin(0.0, "g", 0.001), Poll(1.5, "a\u2028\n", (Record("t", 0, 3, "x"),)), End(2.0, (), True)])
    path = tmp_path / "deep" / "history.jsonl"

    write(path, given)

    assert read(path).operations == given.operations


def test_every_kind_of_operation_is_tried() -> None:
    tried = {Send, Poll, Commit, Committed, Transaction, Ownership, Process, ResetBegin, ResetEnd, Hold, Begin, End}
    assert set(get_args(Operation)) == tried


BEGIN = '{"op":"begin","t":1,"group":"g","precision_s":0.001}'
END = '{"op":"end","t":9,"ends":[],"drained":true}'
RESET = '{"op":"reset-begin","t":2,"run":"r","targets":[["t",0,5]]}'
OVER = '{"op":"reset-end","t":3,"run":"r","phase":"Succeeded"}'


@pytest.mark.parametrize(
    ("lines", "line", "says"),
    [
        ([], 1, "begins with a begin"),
        ([END], 1, "begins with a begin"),
        ([BEGIN, BEGIN], 2, "second begin"),
        ([BEGIN, END, '{"op":"pause","t":9,"partitions":[]}'], 3, "after the end"),
        ([BEGIN, '{"op":"pause","t":0.5,"partitions":[]}'], 2, "before that of the line before"),
        ([BEGIN, RESET, RESET], 3, "begins a second time"),
        ([BEGIN, OVER.replace("3", "1")], 2, "is not running"),
        ([BEGIN, RESET, OVER, OVER], 4, "is not running"),
        ([BEGIN, RESET, OVER.replace("Succeeded", "Fine")], 3, "phase"),
        ([BEGIN, '{"op":"send","t":2,"topic":"t","partition":0,"outcome":"acked"}'], 2, "has an offset"),
        ([BEGIN, '{"op":"send","t":2,"topic":"t","partition":0,"outcome":"failed","offset":1}'], 2, "has an offset"),
        ([BEGIN, "{"], 2, "JSON"),
        ([BEGIN, ""], 2, "JSON"),
        ([BEGIN, '{"op":"fly","t":2}'], 2, "fly"),
        ([BEGIN, '{"op":"pause","t":2,"partitions":[],"why":"?"}'], 2, "why"),
        ([BEGIN, '{"op":"pause","t":"2","partitions":[]}'], 2, "valid number"),
        ([BEGIN, '{"op":"pause","t":NaN,"partitions":[]}'], 2, "finite"),
        ([BEGIN, '{"op":"pause","t":2}'], 2, "partitions"),
        ([BEGIN, '{"op":"poll","t":2,"member":"a","records":[["t",0,-1]]}'], 2, "greater than or equal to 0"),
    ],
)
def test_a_bad_line_is_refused_with_its_place(lines: Sequence[str], line: int, says: str) -> None:
    with pytest.raises(HistoryError, match=f"^trial.jsonl:{line}: .*{says}"):
        from_lines(lines, "trial.jsonl")


def test_a_history_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    path.write_text(f"{BEGIN}\n{END}")

    with pytest.raises(HistoryError, match=r"h\.jsonl:2: the line has no end"):
        read(path)
