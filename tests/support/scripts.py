"""Scripts that stand outside every package, as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def loaded(path: Path) -> ModuleType:
    """The script as a module of its own name."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # its dataclasses look for it there
    spec.loader.exec_module(module)
    return module
