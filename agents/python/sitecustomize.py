"""Python imports this at its start when the folder is on ``PYTHONPATH``: the agent comes in before the application.

There may be another ``sitecustomize`` further down the path, which Python would have imported instead; it runs as well.
A folder ``fallback`` beside this file holds what the agent imports and the application may lack; it comes last on the
path, so that what the application has goes before it.
"""

import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path


def _next_sitecustomize() -> None:
    here = Path(__file__).resolve().parent
    path = [Path(entry or os.curdir).resolve() for entry in sys.path]
    further = [str(entry) for entry in path[path.index(here) + 1 :] if entry != here] if here in path else []
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", further)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if os.environ.get("TIDEGATE_AGENT"):
    fallback = Path(__file__).resolve().with_name("fallback")
    if fallback.is_dir():
        sys.path.append(str(fallback))
    try:
        from tidegate_agent import inject
    except ImportError as error:
        sys.stderr.write(f"the Tidegate agent stays out: {error}\n")
    else:
        inject.start()

_next_sitecustomize()
