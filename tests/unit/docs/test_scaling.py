"""The page about scaling says what its model says, and the model what it is calibrated by."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from support.scripts import loaded

DOCS = Path(__file__).resolve().parents[3] / "docs"
RUN = "run: .venv/bin/python docs/generate_scaling.py"


@pytest.fixture(scope="module")
def model() -> ModuleType:
    return loaded(DOCS / "generate_scaling.py")


def test_the_page_is_that_of_the_model(model: ModuleType) -> None:
    there = model.PAGE.read_text()

    assert model.page(there, model.tables(model.ASKED, model.Measured.read())) == there, RUN


def test_what_is_measured_anew_changes_the_page(model: ModuleType) -> None:
    measured = model.Measured.read()
    before = model.tables(model.ASKED, measured)
    readers = {case: (3 * ours, anchor) for case, (ours, anchor) in measured.readers.items()}
    few, many = measured.calibration
    rungs = [measured.ladder[0], few, {**many, "rss MiB": 5_000.0}]

    assert model.tables(model.ASKED, replace(measured, readers=readers))["brokers"] != before["brokers"]
    assert model.tables(model.ASKED, replace(measured, ladder=rungs))["kubernetes"] != before["kubernetes"]


def test_costs_grow_with_what_causes_them(model: ModuleType) -> None:
    measured, size = model.Measured.read(), model.ASKED

    assert model.start_records(size, for_each_partition=True) == 10 * model.start_records(
        size, for_each_partition=False
    )
    twice = replace(size, agents=2 * size.agents)
    assert model.agents_requests_per_s(twice, measured, ours=True) == pytest.approx(
        2 * model.agents_requests_per_s(size, measured, ours=True)
    )
    assert model.look_interval_s(replace(size, topics=50)) == 0.2
    assert model.look_interval_s(replace(size, topics=50_000)) == pytest.approx(10 * model.look_interval_s(size))
    more = replace(size, brokers=12)
    before, after = (model.requests_per_s(each, measured) for each in (size, more))
    assert after["groups"] == pytest.approx(2 * before["groups"])
    assert after["write_clock"] == before["write_clock"]


LADDER = """
| resources | rss MiB | cpu % |
| --- | --- | --- |
| 0 | 190 | 0.1 |
| 100 | 290 | 2.1 |
| 1,000 | 1,190.5 | 20.1 |
| 1,000 through 200 connections | 3,000 | 90 |
| 2,000 | – | 99 |
| 5,000 | 4,190 | 99 |
"""


def test_a_rung_that_has_not_settled_calibrates_nothing(model: ModuleType) -> None:
    rungs = model.ladder(LADDER)

    assert [rung["resources"] for rung in rungs] == [0, 100, 1000, 5000]
    assert rungs[2]["rss MiB"] == 1190.5
    for unsettled in ("1,190.5", "190", "290"):
        with pytest.raises(ValueError, match="the empty operator and two rungs"):
            model.ladder(LADDER.replace(f"| {unsettled} |", "| – |"))


def test_rungs_above_a_thousand_are_predicted_and_not_calibrated_by(model: ModuleType) -> None:
    columns = dict.fromkeys(model.COMPARED, 0.0)
    sizes = [(0.0, 190.0), (100.0, 200.0), (500.0, 230.0), (1000.0, 290.0), (5000.0, 610.0)]
    rungs = [{**columns, "resources": n, "rss MiB": mib} for n, mib in sizes]
    measured = replace(model.Measured.read(), ladder=rungs)

    assert measured.predicted("rss MiB", 5000) == pytest.approx(690)
    rows = model.ladder_table(measured).splitlines()
    assert [row.split("|")[3].strip() for row in rows[2:]] == ["190", "200", "240 / 230", "290", "690 / 610"]


@pytest.mark.parametrize("text", ["no marks", "<!-- model a --><!-- end b -->", "<!-- model a --><!-- end a -->" * 2])
def test_a_page_without_its_marks_is_refused(model: ModuleType, text: str) -> None:
    with pytest.raises(ValueError, match="has to have each of these marks once"):
        model.page(text, {"a": "table"})
    assert (
        model.page("x <!-- model a --> old <!-- end a -->", {"a": "t"}) == "x <!-- model a -->\n\nt\n\n<!-- end a -->"
    )
