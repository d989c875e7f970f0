"""What ``docs/measure_architecture.py`` counts is in the code: circles, imports that go up, lengths."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "docs" / "measure_architecture.py"


@pytest.fixture(scope="module")
def measure() -> ModuleType:
    spec = importlib.util.spec_from_file_location("measure_architecture", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def module(*imports: str) -> str:
    return "".join(f"from tidegate.{name} import x\n" for name in imports) + "def f():\n    pass\n"


CODE = {
    "operator/tidegate/__init__.py": "",
    "operator/tidegate/main.py": module("pause.handlers", "kube"),
    "operator/tidegate/pause/handlers.py": module("pause.plan", "kube.loop", "clock"),
    "operator/tidegate/pause/plan.py": module("clock"),
    "operator/tidegate/kube/loop.py": module("clock"),
    "operator/tidegate/clock.py": module(),
    "agents/python/tidegate_agent/core.py": module(),
}


def test_packages_that_import_only_downwards_are_in_no_circle(measure: ModuleType) -> None:
    found = measure.measures(CODE)

    assert found["circles of packages (packages in the largest)"] == "0 (0)"
    assert found["imports that go up"] == "0"
    assert found["packages and modules right below `tidegate`"] == "4"
    assert found["largest function"].endswith("f`, 2 lines")


def test_a_circle_is_counted_with_the_fewest_imports_that_make_it(measure: ModuleType) -> None:
    circle = CODE | {"operator/tidegate/clock.py": module("pause.plan")}

    graph = measure.imports_between_packages(circle)

    assert measure.circles(graph) == [("clock", "kube", "pause")]
    assert measure.fewest_up(graph, ("clock", "kube", "pause")) == 1


def test_two_circles_through_one_package_need_two_imports_less(measure: ModuleType) -> None:
    graph = {"a": frozenset("b"), "b": frozenset("ac"), "c": frozenset("b")}

    assert measure.circles(graph) == [("a", "b", "c")]
    assert measure.fewest_up(graph, ("a", "b", "c")) == 2
