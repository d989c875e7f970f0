"""What the tests would not notice: ``make mutants``, on a sample of the operator's core (``SEED=7 COUNT=400``).

mutmut changes a function in one place (a comparison, a number, an argument, ...) and runs the tests that call it. A
mutant that they let pass has *survived*: a test is missing, or the change makes no difference, which ``ACCEPTED`` says
of the mutants that are known, with the reason. Changes of nothing but a log line or the words of a message are not
drawn: people read these.

All happens in a copy below ``build/mutants``. The outcome goes to ``docs/benchmarks/mutants.md``. Exit code 1 where
more than `LIMIT` of the mutants survive without a reason.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import textwrap
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).resolve().parents[2]
WORK: Final = PROJECT / "build" / "mutants"
PACKAGES: Final = PROJECT / "build" / "mutants-packages"
ACCEPTED: Final = PROJECT / "tests" / "accepted_mutants.toml"
KEPT: Final = PROJECT / "docs" / "benchmarks" / "mutants.md"
SOURCE: Final = Path("src")
LIMIT: Final = 0.05
"""Of all that were tried: how many may survive without a reason."""

CORE: Final = (
    "control",
    "discovery",
    "leading",
    "pause",
    "policy",
    "reset",
    "retention",
    "stuck",
    "sweep",
)
"""Packages of ``operator/tidegate`` that decide what happens to a group's offsets."""
TESTS: Final = (
    *(f"tests/unit/{package}" for package in CORE),
    *("tests/unit/audit", "tests/unit/offset_reset", "tests/unit/test_stored_documents.py"),
    *("tests/property", "tests/contract", "tests/security/test_hostile_acks.py"),
)

HEAD: Final = """\
# What the tests would not notice

`make mutants SEED=7 COUNT=400` draws that many places in the packages that decide what happens to a group's offsets,
changes each of them (mutmut), and runs the pure tests that call the function. A change that the tests let pass has
survived: either it makes no difference that anybody can see, for which
[tests/accepted_mutants.toml](../../tests/accepted_mutants.toml) gives the reason, or a test is missing. Changes that
affect only a log line or the words of a message are not drawn. mutmut does not change functions with decorators
(properties, class methods).

"""


@dataclass(frozen=True, slots=True, order=True)
class Mutant:
    """``name``: mutmut's. ``was`` and ``becomes``: the lines of the function that differ, without indentation."""

    name: str
    was: str
    becomes: str

    @property
    def function(self) -> str:
        """Dotted, as ``tidegate.reset.plan.Plan.first``."""
        module, _, mangled = self.name.partition(".x")
        inner = mangled.partition("__mutmut_")[0].removeprefix("_").strip("ǁ").replace("ǁ", ".")
        return f"{module}.{inner}"

    @property
    def package(self) -> str:
        return self.name.split(".")[1]


def mutant(name: str, before: str, after: str) -> Mutant | None:
    """Of a function's source before and after; ``None`` where only a log line or the words of a message differ."""
    if _without_words(before) == _without_words(after):
        return None
    old, new = ([line.strip() for line in text.splitlines()] for text in (before, after))
    while old and new and old[0] == new[0]:
        del old[0], new[0]
    while old and new and old[-1] == new[-1]:
        del old[-1], new[-1]
    return Mutant(name, " ".join(old), " ".join(new))


def _without_words(function: str) -> str:
    tree = ast.parse(textwrap.dedent(function))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _is_logging(node.func):
            node.args, node.keywords = [], []
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            node.value = ""
    return ast.dump(tree)


def _is_logging(called: ast.expr) -> bool:
    return isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "_log"


def statuses(printed: str) -> dict[str, str]:
    """By mutant what ``mutmut results`` says of it: killed, survived, timeout, no tests, ..."""
    lines = (line.strip().rpartition(": ") for line in printed.splitlines())
    return {name: status for name, _, status in lines if "__mutmut_" in name}


def reasons(toml: str) -> dict[tuple[str, str, str], str]:
    """By function, what it was and what it becomes: why nobody can see the difference. Raises ``ValueError``."""
    found: dict[tuple[str, str, str], str] = {}
    for entry in tomllib.loads(toml).get("mutant", []):
        if set(entry) != {"function", "was", "becomes", "reason"}:
            raise ValueError(f"{ACCEPTED.name}: function, was, becomes and reason are needed: {entry}")
        found[entry["function"], entry["was"], entry["becomes"]] = entry["reason"]
    return found


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a sample; ``accepted``: with the reasons."""

    killed: Sequence[Mutant]
    missed: Sequence[Mutant]
    accepted: Sequence[tuple[Mutant, str]]

    @property
    def tried(self) -> int:
        return len(self.killed) + len(self.missed) + len(self.accepted)

    @property
    def is_good(self) -> bool:
        return len(self.missed) <= LIMIT * self.tried


def outcome(sample: Iterable[Mutant], status: Mapping[str, str], known: Mapping[tuple[str, str, str], str]) -> Outcome:
    """Raises ``ValueError`` where a mutant was not tried: nothing is known of it then."""
    killed: list[Mutant] = []
    missed: list[Mutant] = []
    accepted: list[tuple[Mutant, str]] = []
    for each in sorted(sample):
        match status.get(each.name):
            case "killed" | "timeout" | "segfault":
                killed.append(each)
            case "survived" | "no tests":
                reason = known.get((each.function, each.was, each.becomes))
                if reason is None:
                    missed.append(each)
                else:
                    accepted.append((each, reason))
            case other:
                raise ValueError(f"{each.name}: {other or 'not tried'}")
    return Outcome(killed, missed, accepted)


def page(result: Outcome, heading: str) -> str:
    """``heading``: when, of which commit, with which seed."""
    rows: list[str] = []
    by_package = {
        "killed": Counter(each.package for each in result.killed),
        "missed": Counter(each.package for each in result.missed),
        "accepted": Counter(each.package for each, _ in result.accepted),
    }
    for package in sorted(set().union(*by_package.values())):
        cells = [by_package[kind][package] for kind in ("killed", "accepted", "missed")]
        rows.append(f"| {package} | {sum(cells)} | {' | '.join(map(str, cells))} |")
    share = len(result.missed) / result.tried if result.tried else 0.0
    parts = [
        HEAD,
        f"## {heading}\n\n",
        f"**{result.tried} mutants**: {len(result.killed)} noticed, {len(result.accepted)} that make no difference, "
        f"{len(result.missed)} not noticed ({share:.1%}).\n\n",
        "| package | mutants | noticed | no difference | not noticed |\n| --- | --- | --- | --- | --- |\n",
        "\n".join(rows) + "\n",
    ]
    if result.missed:
        parts.append("\n## Not noticed\n\n| function | was | becomes |\n| --- | --- | --- |\n")
        parts += [f"| {_code(each.function)} | {_code(each.was)} | {_code(each.becomes)} |\n" for each in result.missed]
    if result.accepted:
        parts.append("\n## No difference\n\n| function | was | becomes | why |\n| --- | --- | --- | --- |\n")
        parts += [
            f"| {_code(each.function)} | {_code(each.was)} | {_code(each.becomes)} | {reason} |\n"
            for each, reason in result.accepted
        ]
    return "".join(parts)


def _code(text: str) -> str:
    return f"`` {text} ``".replace("|", "\\|") if text else ""


# --- with mutmut


def prepare() -> None:
    """The copy: the operator's source, which mutmut changes, and all else as it is."""
    shutil.rmtree(WORK, ignore_errors=True)
    (WORK / "mutants").mkdir(parents=True)
    shutil.copytree(PROJECT / "operator" / "tidegate", WORK / SOURCE / "tidegate", ignore=_compiled)
    for entry in PROJECT.iterdir():
        if entry.name not in {"operator", "build", "pyproject.toml", ".git", ".venv"}:
            (WORK / "mutants" / entry.name).symlink_to(entry)
    (WORK / "mutants" / "operator").symlink_to(WORK / "mutants" / SOURCE)
    (WORK / "pyproject.toml").write_text((PROJECT / "pyproject.toml").read_text() + _settings())


_compiled = shutil.ignore_patterns("__pycache__")


def _settings() -> str:
    only = [f"{SOURCE}/tidegate/{package}/*" for package in CORE]
    return textwrap.dedent(
        f"""
        [tool.mutmut]
        source_paths = ["{SOURCE}"]
        only_mutate = {only}
        pytest_add_cli_args = ["-m", "pure", "-p", "no:cacheprovider", "-p", "no:xdist"]
        pytest_add_cli_args_test_selection = {list(TESTS)}
        process_isolation = "forkserver"
        use_git_change_detection = false
        track_dependencies = false
        use_setproctitle = false
        """
    ).replace("'", '"')


def candidates() -> Iterator[Mutant]:
    """All that mutmut would make in the copy, but for changes of words. In that folder, as mutmut looks there."""
    from mutmut.mutation.file_mutation import mutate_file_contents
    from mutmut.utils.format_utils import get_mutant_name

    for package in CORE:
        for path in sorted((SOURCE / "tidegate" / package).rglob("*.py")):
            made = mutate_file_contents(str(path), path.read_text())
            lines = made.code.splitlines()
            for function in made.mutant_names:
                original = f"{function.partition('__mutmut_')[0]}__mutmut_orig"
                before, after = (
                    "\n".join(lines[span.start - 1 : span.end]).replace(name, "function")
                    for name, span in ((n, made.line_span_by_function_name[n]) for n in (original, function))
                )
                found = mutant(get_mutant_name(path, function), before, after)
                if found is not None:
                    yield found


def mutmut(*arguments: str) -> str:
    """What it prints, which is kept in the copy as well. Raises ``SystemExit`` where it fails."""
    log = WORK / f"{arguments[0]}.log"
    environment = {**os.environ, "PYTHONPATH": str(PACKAGES)}
    with log.open("w") as output:
        done = subprocess.run(
            [sys.executable, "-m", "mutmut", *arguments],
            cwd=WORK,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        raise SystemExit(f"mutmut {arguments[0]} ended with {done.returncode}: {log}")
    return log.read_text()


def _commit() -> str:
    """Of what is tried, and whether the operator or its tests differ from it."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(PROJECT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    changed = git("status", "--porcelain", "--", "operator", *TESTS)
    return git("rev-parse", "--short", "HEAD") + (" with changes" if changed else "")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(arguments)
    commit = _commit()
    prepare()
    sys.path.insert(0, str(PACKAGES))
    os.chdir(WORK)
    everything = list(candidates())
    sample = random.Random(options.seed).sample(everything, min(options.count, len(everything)))
    print(f"{len(sample)} of {len(everything)} mutants", flush=True)
    mutmut("run", "--max-children", str(options.processes), *(each.name for each in sample))
    known = reasons(ACCEPTED.read_text())
    result = outcome(sample, statuses(mutmut("results", "--all", "true")), known)
    KEPT.write_text(page(result, f"{datetime.now(UTC):%Y-%m-%d}, {commit}, seed {options.seed} of {len(everything)}"))
    print(f"{result.tried} tried, {len(result.accepted)} make no difference, {len(result.missed)} not noticed: {KEPT}")
    return 0 if result.is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
