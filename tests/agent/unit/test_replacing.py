"""Classes of client libraries are replaced under every name by which applications get at them."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from tidegate_agent.adapters.replacing import named_as, replace_class, replace_part


class Plain:
    """As the library says."""

    def known(self) -> None: ...


class Gated(Plain):
    pass


def test_every_module_that_has_the_class_gets_the_replacement(monkeypatch: pytest.MonkeyPatch) -> None:
    module, package, other = ModuleType("lib.consumer"), ModuleType("lib"), ModuleType("lib.other")
    for holder in (module, package):
        holder.__dict__["Plain"] = Plain
    other.__dict__["Plain"] = "something else"
    monkeypatch.setitem(sys.modules, "lib", package)
    monkeypatch.setitem(sys.modules, "lib.other", other)
    replace_class(Plain, Gated, module, "lib", "lib.other", "not.imported")
    assert (module.__dict__["Plain"], package.__dict__["Plain"]) == (Gated, Gated)
    assert other.__dict__["Plain"] == "something else"


def test_a_replacement_is_called_what_it_replaces() -> None:
    made = named_as(type("Another", (Plain,), {}), Plain)
    assert (made.__name__, made.__module__, made.__doc__) == ("Plain", __name__, "As the library says.")


def test_a_part_of_another_version_is_left_alone() -> None:
    module = ModuleType("lib.parts")
    module.__dict__["Plain"] = Plain
    with pytest.raises(AttributeError, match="has no renamed in this version"):
        replace_part(module, Gated, "known", "renamed")
    assert module.__dict__["Plain"] is Plain
    replace_part(module, Gated, "known")
    assert module.__dict__["Plain"] is Gated
