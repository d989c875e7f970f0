"""Measures the code of the operator and the agent: ``.venv/bin/python docs/measure_architecture.py COMMIT ...``.

Prints a table in Markdown. A package is a folder or a module right below ``operator/tidegate``. Packages are in a
circle where each can be reached from each by imports. Imports that go up are the fewest from package to package without
which there would be no circle; so they can be counted in code that knows no floors.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tarfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OPERATOR, AGENT, CONTRACTS = "operator/tidegate/", "agents/python/tidegate_agent/", ".importlinter"

Graph = Mapping[str, frozenset[str]]
"""By package, those that it imports."""


def main() -> None:
    commits = sys.argv[1:] or ["HEAD"]
    tables = [measures(files_of(commit)) for commit in commits]
    rows = [["", *commits], ["---"] * (1 + len(commits))]
    rows += [[name, *(table[name] for table in tables)] for name in tables[0]]
    sys.stdout.writelines(f"| {' | '.join(row)} |\n" for row in rows)


def files_of(commit: str) -> dict[str, str]:
    """The texts of a commit that are measured, by path. Raises ``CalledProcessError`` for one that is not there."""
    tar = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        return {
            member.name: content.read().decode()
            for member in archive
            if member.name == CONTRACTS or (member.name.startswith((OPERATOR, AGENT)) and member.name.endswith(".py"))
            if (content := archive.extractfile(member)) is not None
        }


def measures(files: Mapping[str, str]) -> dict[str, str]:
    """What is measured, by its name."""
    code = {path: text for path, text in files.items() if path != CONTRACTS}
    lines = {path: text.count("\n") for path, text in code.items()}
    functions = {f"{path}: {name}": length for path, text in code.items() for name, length in functions_of(text)}
    graph = imports_between_packages(code)
    rings = circles(graph)
    contracts = files.get(CONTRACTS, "")
    return {
        "packages and modules right below `tidegate`": str(len(graph)),
        "circles of packages (packages in the largest)": f"{len(rings)} ({max(map(len, rings), default=0)})",
        "imports that go up": str(sum(fewest_up(graph, ring) for ring in rings)),
        "contracts; lines of `.importlinter`": f"{contracts.count('[importlinter:')}; {contracts.count(chr(10))}",
        "largest module": _largest(lines),
        "modules above 400 lines": str(sum(length > 400 for length in lines.values())),
        "largest function": _largest(functions),
        "functions above 60 lines": str(sum(length > 60 for length in functions.values())),
        "modules; lines of operator and agent": f"{len(lines)}; {sum(lines.values()):,}",
    }


def _largest(lengths: Mapping[str, int]) -> str:
    name = max(lengths, key=lambda path: lengths[path])
    return f"`{name.removeprefix('operator/tidegate/').removeprefix('agents/python/')}`, {lengths[name]} lines"


def functions_of(text: str) -> Iterator[tuple[str, int]]:
    """Names and lengths in lines."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def imports_between_packages(code: Mapping[str, str]) -> Graph:
    """Wherever they stand: also below ``TYPE_CHECKING``, and in functions."""
    found: dict[str, set[str]] = defaultdict(set)
    for path, text in code.items():
        if not path.startswith(OPERATOR):
            continue
        package = path.removeprefix(OPERATOR).split("/")[0].removesuffix(".py")
        found[package] |= {name.split(".")[1] for name in _imported(text) if name.startswith("tidegate.")} - {package}
    found.pop("__init__", None)
    return {package: frozenset(imported & found.keys()) for package, imported in found.items()}


def _imported(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def circles(graph: Graph) -> list[tuple[str, ...]]:
    """The sets of packages of which each reaches each, of two and more."""
    reached = {package: _reachable(graph, package) for package in graph}
    rings = {tuple(sorted(q for q in reached[p] if p in reached[q])) for p in graph}
    return sorted(ring for ring in rings if len(ring) > 1)


def _reachable(graph: Graph, start: str) -> frozenset[str]:
    reached, left = {start}, [start]
    while left:
        for package in graph[left.pop()] - reached:
            reached.add(package)
            left.append(package)
    return frozenset(reached)


def fewest_up(graph: Graph, ring: tuple[str, ...]) -> int:
    """Of all orders of a circle's packages, the one with the fewest imports against it; exact, by sets of packages."""
    bits = {package: 1 << n for n, package in enumerate(ring)}
    imports = [sum(bits[p] for p in graph[package] if p in bits) for package in ring]
    fewest = [0] * (1 << len(ring))
    for below in range(1, len(fewest)):
        # The topmost of them imports what it likes below; what those below import of it goes up.
        fewest[below] = min(
            fewest[below ^ bit]
            + sum(bool(imports[m] & bit) for m in range(len(ring)) if below >> m & 1 and 1 << m != bit)
            for bit in bits.values()
            if below & bit
        )
    return fewest[-1]


if __name__ == "__main__":
    main()
