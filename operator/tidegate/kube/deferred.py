"""What the official client imports as soon as it is imported, and neither commands nor jobs use: loaded once something
asks for it, by the standard library's ``LazyLoader``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType
from typing import Final

_UNUSED: Final = frozenset(
    f"kubernetes.{name}" for name in ("dynamic", "informer", "leaderelection", "stream", "watch")
)


class _Deferring(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        found = PathFinder.find_spec(name, path, target) if name in _UNUSED else None
        if found is not None and found.loader is not None:
            found.loader = LazyLoader(found.loader)
        return found


def defer_unused() -> None:
    """Before ``kubernetes`` is imported for the first time; nothing changes where it was."""
    if "kubernetes" not in sys.modules:
        sys.meta_path.insert(0, _Deferring())
