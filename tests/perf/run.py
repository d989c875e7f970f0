"""Runs one benchmark, or all: ``python tests/perf/run.py [NAME] [its arguments]``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def names() -> list[str]:
    """The benchmarks there are: a file ``bench_<name>.py`` each, with ``main(arguments)``."""
    return sorted(path.stem.removeprefix("bench_").replace("_", "-") for path in FOLDER.glob("bench_*.py"))


def main(arguments: list[str]) -> int:
    """Exit code 2 for a name there is not."""
    for folder in (FOLDER.parents[1] / "operator", FOLDER.parents[1] / "dev", FOLDER.parent, FOLDER.parents[1]):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    name, rest = (arguments[0], arguments[1:]) if arguments and not arguments[0].startswith("-") else ("", arguments)
    if name and name not in names():
        print(f"there is no benchmark {name!r}: {', '.join(names())}", file=sys.stderr)
        return 2
    for chosen in [name] if name else names():
        importlib.import_module(f"perf.bench_{chosen.replace('-', '_')}").main(rest)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
