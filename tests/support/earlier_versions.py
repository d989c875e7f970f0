"""The operator as an earlier commit has it, next to this one's."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).resolve().parents[2]

BEFORE_VERSIONS: Final = "b5a691bac2fe9be43efdaf4d7287f34332bace52"
"""The last commit whose stored documents say no version. To be the release before, once there is one."""


def is_here(commit: str) -> bool:
    """Whether the checkout has this commit; a shallow clone has not."""
    asked = subprocess.run(
        ["git", "-C", str(PROJECT), "cat-file", "-e", f"{commit}^{{commit}}"], capture_output=True, check=False
    )
    return asked.returncode == 0


def unpacked(commit: str, what: str, folder: Path) -> Path:
    """A folder of the tree of a commit, below `folder`."""
    archive = subprocess.run(
        ["git", "-C", str(PROJECT), "archive", "--format=tar", commit, what], capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    return folder / what


def previous(place: Path, folder: Path) -> Path | None:
    """A folder of the checkout as the commit before the last that changed it has it; ``None`` where Git knows none."""
    inside = str(place.relative_to(PROJECT))
    git = ["git", "-C", str(PROJECT), "log", "--format=%H", "-2", "--", inside]
    commits = subprocess.run(git, capture_output=True, text=True, check=False).stdout.split()
    if len(commits) < 2 or not is_here(commits[1]):
        return None
    return unpacked(commits[1], inside, folder)


def environment_of(operator: Path) -> dict[str, str]:
    """With which a process runs the code of this operator folder; fails where it would run another one."""
    environment = {"PYTHONPATH": str(operator)}
    found = subprocess.run(
        [sys.executable, "-c", "import tidegate; print(tidegate.__file__)"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    assert Path(found).is_relative_to(operator), f"{found} would run instead of {operator}"
    return environment
