"""How classes of a client library are replaced by subclasses of them, once its module has been imported."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


def replace_part(holder: ModuleType, part: type[Any], *overridden: str) -> None:
    """Have ``holder`` make instances of ``part`` where it made those of its base class.

    Raises ``AttributeError`` where the base lacks a method that is overridden: it is of another version of the library.
    """
    base = part.__mro__[1]
    for name in overridden:
        if not hasattr(base, name):
            raise AttributeError(f"{base.__module__}.{base.__name__} has no {name} in this version")
    setattr(holder, base.__name__, part)


def replace_class(plain: type[Any], replacement: type[Any], module: ModuleType, *others: str) -> None:
    """Give ``replacement`` under the name of ``plain`` in its module, and in those of ``others`` that are imported."""
    for holder in (module, *(sys.modules[name] for name in others if name in sys.modules)):
        if getattr(holder, plain.__name__, None) is plain:
            setattr(holder, plain.__name__, replacement)


def named_as(replacement: type[Any], plain: type[Any]) -> type[Any]:
    """The replacement, telling of itself what the plain class does."""
    replacement.__name__, replacement.__qualname__ = plain.__name__, plain.__qualname__
    replacement.__module__, replacement.__doc__ = plain.__module__, plain.__doc__
    return replacement
