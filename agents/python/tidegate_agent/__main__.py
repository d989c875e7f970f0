"""``python -m tidegate_agent run app.py …`` or ``run -m module …``: what follows ``run`` as Python would run it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

USAGE = "usage: python -m tidegate_agent run (script.py | -m module) [argument …]"


def command(arguments: list[str], environ: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """What runs the application with the agent, and its environment. Raises ``ValueError`` with the usage."""
    if len(arguments) < 2 or arguments[0] != "run" or (arguments[1] == "-m" and len(arguments) < 3):
        raise ValueError(USAGE)
    here = str(Path(__file__).resolve().parents[1])
    path = environ.get("PYTHONPATH", "")
    if here not in path.split(os.pathsep):
        path = here + (os.pathsep + path if path else "")
    return [sys.executable, *arguments[1:]], {**environ, "TIDEGATE_AGENT": "1", "PYTHONPATH": path}


def main() -> None:
    try:
        argv, environ = command(sys.argv[1:], dict(os.environ))
    except ValueError as error:
        sys.exit(str(error))
    # In place: the same process id, signals and streams as if the application had been started by itself.
    os.execve(argv[0], argv, environ)  # noqa: S606 -- it is what the user asked for


if __name__ == "__main__":
    main()
