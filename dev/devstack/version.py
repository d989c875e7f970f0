"""The one version of wheels, images, chart and Java agent: where it is written, and that it is the same everywhere."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final

from devstack.errors import StackError

_NUMBER: Final = r"\d+\.\d+\.\d+"
FORM: Final = re.compile(_NUMBER)
_IMAGE: Final = rf"tidegate-(?:operator|spark|agent|\$target):({_NUMBER})"
_FILE: Final = rf"(?:tidegate(?:-java-agent|-crds|-example)?|tidegate_agent)-({_NUMBER})"
"""Of a release; ``kubectl-tidegate``, too."""

PLACES: Final = (
    ("pyproject.toml", rf'^version = "({_NUMBER})"'),
    ("operator/tidegate/__init__.py", rf'^__version__ = "({_NUMBER})"'),
    ("agents/python/pyproject.toml", rf'^version = "({_NUMBER})"'),
    ("agents/python/tidegate_agent/__init__.py", rf'^__version__ = "({_NUMBER})"'),
    ("agents/java/**/pom.xml", rf"<artifactId>tidegate-agent</artifactId>\s*<version>({_NUMBER})</version>"),
    ("charts/tidegate/Chart.yaml", rf"^(?:version|appVersion): ({_NUMBER})$"),
    ("charts/tidegate/README.md", rf"^Version ({_NUMBER}), for Kubernetes"),
    ("Dockerfile", rf"^ARG VERSION=({_NUMBER})$"),
    ("docs/**/*.md", _IMAGE),
    ("docs/**/*.md", rf"release\.yml@refs/tags/v({_NUMBER})"),
    ("README.md", _FILE),
    ("docs/how-to/release.md", _FILE),
    ("docs/how-to/audit-a-cluster.md", _FILE),
    ("docs/how-to/install.md", _FILE),
    ("docs/tutorials/in-a-cluster.md", _FILE),
    ("docs/**/*.yaml", _IMAGE),
    ("docs/**/*.yaml", rf"(?:targetRevision: |tag: )v({_NUMBER})"),
)
"""Files, and in each a pattern whose group is the version."""


@dataclass(frozen=True, slots=True)
class Mention:
    """The version, in a file."""

    file: Path
    line: int
    version: str


def mentions(project: Path) -> Iterator[Mention]:
    """All of them, in the order of `PLACES`. Raises `StackError` for a place where there is none."""
    for files, pattern in PLACES:
        found = False
        for file in _files(project, files):
            text = file.read_text()
            for match in re.finditer(pattern, text, re.MULTILINE):
                found = True
                yield Mention(file.relative_to(project), text.count("\n", 0, match.start(1)) + 1, match.group(1))
        if not found:
            raise StackError(f"{files}: no version is found there, by {pattern}")


def version_of(project: Path) -> str:
    """The version of a tree. Raises `StackError` with the places that differ."""
    found = list(mentions(project))
    version = found[0].version
    if others := [each for each in found if each.version != version]:
        listed = "\n".join(f"  {each.file}:{each.line}: {each.version}" for each in others)
        raise StackError(
            f"{found[0].file} has version {version}, and these differ:\n{listed}\n`make version VERSION=...` writes all"
        )
    return version


def write_version(project: Path, version: str, today: date) -> list[Path]:
    """Write it everywhere; the files that changed. What is unreleased in the changelog becomes this version's.

    Raises `StackError` for a version that is not like 1.2.3.
    """
    checked(version)
    changed = []
    changelog = project / "CHANGELOG.md"
    text = changelog.read_text()
    if f"\n## [{version}]" not in text:
        unreleased = "## [Unreleased]\n"
        changelog.write_text(text.replace(unreleased, f"{unreleased}\n## [{version}] - {today.isoformat()}\n", 1))
        changed.append(changelog.relative_to(project))
    for files, pattern in PLACES:
        for file in _files(project, files):
            text = file.read_text()
            written = re.sub(pattern, lambda match: _with_group(match, version), text, flags=re.MULTILINE)
            if written != text:
                file.write_text(written)
                changed.append(file.relative_to(project))
    return changed


def checked(version: str) -> str:
    """`version` itself. Raises `StackError` for one that is not like 1.2.3."""
    if not FORM.fullmatch(version):
        raise StackError(f"{version!r} is not a version like 0.2.0")
    return version


def _with_group(match: re.Match[str], version: str) -> str:
    start, end = (place - match.start() for place in match.span(1))
    whole = match.group()
    return whole[:start] + version + whole[end:]


def _files(project: Path, files: str) -> list[Path]:
    return sorted(path for path in project.glob(files) if "target" not in path.relative_to(project).parts)
