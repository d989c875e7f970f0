"""At which commit a campaign's trials are: the last one that changed what they run."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.campaign.tried import Tried

CODE = '"""What it does."""\n\n\ndef answer() -> int:\n    return 42  # the answer\n'

Commit = Callable[..., str]


@pytest.fixture
def commit(tmp_path: Path) -> Commit:
    """Commits files with these contents; the commit's short hash."""

    def git(*arguments: str) -> str:
        identity = ("-c", "user.name=t", "-c", "user.email=t@localhost")
        command = ["git", "-C", str(tmp_path), *identity, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    git("init", "-q", "-b", "main")

    def made(**contents: str) -> str:
        for name, content in contents.items():
            path = tmp_path / name.replace("__", "/")
            path.parent.mkdir(exist_ok=True)
            path.write_text(content, encoding="utf-8")
        git("add", "--all")
        git("commit", "-q", "-m", "change")
        return git("rev-parse", "--short", "HEAD")

    return made


@pytest.fixture
def tried(tmp_path: Path) -> Tried:
    return Tried(tmp_path, ["code.py", "besides"])


def test_texts_that_are_not_run_do_not_count(tmp_path: Path, tried: Tried, commit: Commit) -> None:
    (tmp_path / "besides").mkdir()
    commit(other="1")
    made = commit(**{"code.py": CODE, "besides__schema": "one"})
    commit(**{"code.py": CODE.replace("What it does", "What it is for").replace("the answer", "of course")})
    commit(other="2")
    commit(**{"code.py": CODE.replace("-> int:\n", '-> int:\n    """No unit."""\n\n')})

    assert tried.commit() == made


@pytest.mark.parametrize(
    "change",
    [
        {"code.py": CODE.replace("42", "43")},
        {"code.py": CODE.replace("return 42", 'return int("42")')},
        {"besides__schema": "two"},
        {"besides__more.py": ""},
    ],
)
def test_everything_else_does(change: dict[str, str], tried: Tried, commit: Commit) -> None:
    commit(**{"code.py": CODE, "besides__schema": "one"})
    changed = commit(**change)
    commit(**{"code.py": change.get("code.py", CODE).replace("What it does", "What it is for")})

    assert tried.commit() == changed


def test_a_change_that_is_taken_back_counts(tried: Tried, commit: Commit) -> None:
    commit(**{"code.py": CODE})
    commit(**{"code.py": CODE.replace("42", "43")})
    again = commit(**{"code.py": CODE})

    assert tried.commit() == again


def test_what_is_not_committed_is_told(tmp_path: Path, tried: Tried, commit: Commit) -> None:
    commit(**{"code.py": CODE})
    assert not tried.is_changed()
    (tmp_path / "code.py").write_text(CODE.replace("42", "43"))
    assert tried.is_changed()


def test_without_a_commit_there_is_none_to_name(tried: Tried, commit: Commit) -> None:
    commit(other="1")
    with pytest.raises(ValueError, match="no commit"):
        tried.commit()
