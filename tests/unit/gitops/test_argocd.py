"""Argo CD's scripts, run as Argo CD runs them: Lua 5.1 with its base and table libraries and nothing else."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from lupa import lua51

from support.scripts import loaded
from support.written_resources import CUSTOMIZATIONS, argo_files, written
from tidegate.resources import kinds

FOLDER: Final = CUSTOMIZATIONS.parents[1]
OPENED: Final = (
    *("assert", "error", "getmetatable", "ipairs", "next", "pairs", "pcall", "rawequal", "rawget", "rawset", "select"),
    *("setmetatable", "tonumber", "tostring", "type", "unpack", "xpcall", "table"),
)
"""The globals of the libraries that Argo CD opens (``util/lua/lua.go``), as far as a script has any use for them."""

REGENERATE: Final = "run: PYTHONPATH=tests .venv/bin/python tests/support/written_resources.py"


def run_script(path: Path, obj: Mapping[str, Any]) -> Any:
    """What the script returns for the resource, as Python values. Raises ``lua51.LuaError``."""
    runtime = lua51.LuaRuntime(unpack_returned_tuples=True, register_eval=False)
    runtime.globals().obj = to_lua(runtime, obj)
    load = runtime.eval(
        """function(script, opened)
             getmetatable("").__index = nil
             local world = {obj = obj}
             for _, name in ipairs(opened) do world[name] = _G[name] end
             return setfenv(assert(loadstring(script)), world)()
           end"""
    )
    return from_lua(load(path.read_text(), to_lua(runtime, list(OPENED))), obj)


def to_lua(runtime: Any, value: Any) -> Any:
    match value:
        case dict():
            return runtime.table_from({name: to_lua(runtime, member) for name, member in value.items()})
        case list():
            return runtime.table_from([to_lua(runtime, member) for member in value])
        case _:
            return value


def from_lua(value: Any, like: Any = None) -> Any:
    """As Argo CD reads it: an empty table is what the resource had in that place."""
    if lua51.lua_type(value) != "table":
        return value
    if not len(list(value.keys())):
        return copy.copy(like) if isinstance(like, dict | list) else []
    if set(value.keys()) == set(range(1, len(value) + 1)):
        before = like if isinstance(like, list) else []
        return [from_lua(each, before[n] if n < len(before) else None) for n, each in enumerate(value.values())]
    before_map = like if isinstance(like, dict) else {}
    return {str(name): from_lua(member, before_map.get(name)) for name, member in value.items()}


def rows(name: str, key: str) -> list[Any]:
    return list(_rows(name, key))


def _rows(name: str, key: str) -> Iterator[Any]:
    for path in sorted(CUSTOMIZATIONS.glob(f"*/{name}")):
        for row in yaml.safe_load(path.read_text())[key]:
            subject = row.get("action", Path(row["inputPath"]).stem)
            yield pytest.param(path.parent, row, id=f"{path.relative_to(CUSTOMIZATIONS).parts[0]}-{subject}")


def read(path: Path) -> dict[str, Any]:
    body: dict[str, Any] = yaml.safe_load(path.read_text())
    return body


@pytest.mark.parametrize(("folder", "row"), rows("health_test.yaml", "tests"))
def test_health(folder: Path, row: dict[str, Any]) -> None:
    assert run_script(folder / "health.lua", read(folder / row["inputPath"])) == row["healthStatus"]


KINDS = tuple(kind.name for kind in kinds.KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_resource_of_an_older_crd_has_no_status_at_first(kind: str) -> None:
    body = {"apiVersion": "tidegate.io/v1alpha1", "kind": kind, "metadata": {"name": "x", "generation": 1}, "spec": {}}

    assert run_script(CUSTOMIZATIONS / kind / "health.lua", body)["status"] == "Progressing"


@pytest.mark.parametrize(("folder", "row"), rows("actions/action_test.yaml", "discoveryTests"))
def test_actions_that_are_offered(folder: Path, row: dict[str, Any]) -> None:
    offered = run_script(folder / "discovery.lua", read(folder / row["inputPath"]))

    assert [{"name": name, **action} for name, action in sorted(offered.items())] == row["result"]
    assert sorted(offered) == sorted(path.parent.name for path in folder.glob("*/action.lua"))


@pytest.mark.parametrize(("folder", "row"), rows("actions/action_test.yaml", "actionTests"))
def test_actions(folder: Path, row: dict[str, Any]) -> None:
    after = run_script(folder / row["action"] / "action.lua", read(folder / row["inputPath"]))

    if isinstance(after, list):  # what is to be created, in place of the resource itself
        after = [{"k8sOperation": each["operation"], "unstructuredObj": each["resource"]} for each in after]
    assert after == read(folder / row["expectedOutputPath"])


def test_a_plan_that_does_not_wait_is_not_approved() -> None:
    folder = CUSTOMIZATIONS / "OffsetReset"
    with pytest.raises(lua51.LuaError, match="no plan of this reset waits"):
        run_script(folder / "actions" / "approve" / "action.lua", read(folder / "testdata" / "succeeded.yaml"))


def test_the_test_data_are_what_the_operator_writes() -> None:
    there = {path: path.read_text() for path in CUSTOMIZATIONS.glob("**/testdata/*.yaml")}
    there |= {path: path.read_text() for path in CUSTOMIZATIONS.glob("*/health_test.yaml")}

    assert there == argo_files(), REGENERATE
    assert len({(each.kind, each.name) for each in written()}) == len(written())


def test_the_config_map_carries_the_scripts_as_they_are() -> None:
    module = loaded(FOLDER / "configmap.py")

    text = (FOLDER / "argocd-cm.yaml").read_text()
    assert text == module.text(), "run: python integrations/argocd/configmap.py"
    data = yaml.safe_load(text)["data"]
    for kind in KINDS:
        script = data.pop(f"resource.customizations.health.tidegate.io_{kind}")
        assert script == (CUSTOMIZATIONS / kind / "health.lua").read_text()
    for key, value in data.items():
        folder = CUSTOMIZATIONS / key.rpartition("_")[2] / "actions"
        actions = yaml.safe_load(value)
        assert actions["discovery.lua"] == (folder / "discovery.lua").read_text()
        for action in actions["definitions"]:
            assert action["action.lua"] == (folder / action["name"] / "action.lua").read_text()
