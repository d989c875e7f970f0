"""Files that were fetched, held to a list of their SHA-256 sums as ``sha256sum`` writes it."""

import hashlib
from pathlib import Path

from devstack.errors import StackError


def verify_jars(folder: Path, sums: Path) -> None:
    """Raise `StackError` unless the jars in `folder` are those that `sums` lists, no fewer and no others."""
    if not sums.is_file():
        raise StackError(f"there is no {sums} to hold the jars to; {_how(folder, sums)}")
    listed = dict(line.split("  ", 1)[::-1] for line in sums.read_text().splitlines())
    fetched = {jar.name: sha256(jar) for jar in sorted(folder.glob("*.jar"))}
    wrong = [
        *(f"{name} was not fetched" for name in sorted(listed.keys() - fetched.keys())),
        *(f"{name} is not listed (sha256 {fetched[name]})" for name in sorted(fetched.keys() - listed.keys())),
        *(
            f"{name} has sha256 {fetched[name]}, listed is {listed[name]}"
            for name in sorted(listed.keys() & fetched.keys())
            if fetched[name] != listed[name]
        ),
    ]
    if wrong:
        raise StackError("\n".join([f"the fetched jars are not those of {sums}:", *wrong, _how(folder, sums)]))


def _how(folder: Path, sums: Path) -> str:
    return (
        f"where a version was changed on purpose, write the list anew: fetch by `mvn -C`, "
        f"which compares with the repository's own checksums, then sha256sum *.jar > {sums.name} (was in {folder})"
    )


def sha256(path: Path) -> str:
    """In hexadecimal digits."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
