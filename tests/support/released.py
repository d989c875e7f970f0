"""This commit as one that a release can be made of."""

from __future__ import annotations

import subprocess
from datetime import date
from pathlib import Path
from typing import Final

from devstack.version import version_of, write_version

PROJECT: Final = Path(__file__).resolve().parents[2]
TODAY: Final = date(2027, 2, 3)


def git(folder: Path, *arguments: str) -> str:
    """What git says of a repository, in the name of a test. Raises ``CalledProcessError``."""
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.com"]
    done = subprocess.run(["git", "-C", str(folder), *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def clone_for_release(folder: Path) -> Path:
    """A clone in `folder`, which is not there yet, with a changelog that describes the version."""
    git(PROJECT, "clone", "--quiet", str(PROJECT), str(folder))
    write_version(folder, version_of(folder), TODAY)
    git(folder, "commit", "--quiet", "--all", "--allow-empty", "--message", "Release")
    return folder
