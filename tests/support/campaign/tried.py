"""Which commit is tried: the last one that changed what trials run. Comments and docstrings of Python are not run."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


class _WithoutTexts(ast.NodeTransformer):
    """Takes out strings that are statements by themselves."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        alone = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if alone else self.generic_visit(node)


class Tried:
    """What is at ``paths`` of a Git repository: files and folders, from its root."""

    def __init__(self, repository: Path, paths: Sequence[str]) -> None:
        self._repository = repository
        self._paths = paths

    def commit(self) -> str:
        """The last commit on the branch, and its merges, that changed what is run. Raises ``CalledProcessError``, and
        ``ValueError`` where nothing of it was ever committed."""
        commits = self._git("log", "--first-parent", "--format=%h", "--", *self._paths).decode().split()
        if not commits:
            raise ValueError(f"no commit of {self._repository} has {', '.join(self._paths)}")
        now = self._blobs("HEAD")
        found = commits[0]
        for earlier in commits[1:]:
            if self._differ(self._blobs(earlier), now):
                break
            found = earlier
        return found

    def is_changed(self) -> bool:
        """Whether the working tree differs from HEAD there."""
        return bool(self._git("status", "--porcelain", "--", *self._paths))

    def _blobs(self, commit: str) -> dict[str, str]:
        """Of each file, by its path."""
        lines = self._git("ls-tree", "-r", "-z", "--format=%(objectname) %(path)", commit, "--", *self._paths)
        return {path: blob for blob, _, path in (line.partition(" ") for line in lines.decode().split("\0") if line)}

    def _differ(self, one: Mapping[str, str], other: Mapping[str, str]) -> bool:
        return one.keys() != other.keys() or any(
            one[path] != other[path] and self._meant(path, one[path]) != self._meant(path, other[path]) for path in one
        )

    def _meant(self, path: str, blob: str) -> str | bytes:
        content = self._git("cat-file", "blob", blob)
        return ast.dump(_WithoutTexts().visit(ast.parse(content))) if path.endswith(".py") else content

    def _git(self, *arguments: str) -> bytes:
        return subprocess.run(["git", "-C", str(self._repository), *arguments], capture_output=True, check=True).stdout
