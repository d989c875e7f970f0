"""Commands of pages that nothing else runs as they stand, pasted into a shell."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
from pathlib import Path
from textwrap import dedent
from typing import Final

import pytest

DOCS: Final = Path(__file__).resolve().parents[3] / "docs"
SCRIPT: Final = "#!/bin/sh\necho completing\n"


def pasted(command: str, folder: Path, **variables: str) -> str:
    """What a command prints. Raises ``CalledProcessError`` where it fails."""
    env = os.environ | variables
    return subprocess.run(["sh", "-c", command], cwd=folder, env=env, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("servers", ["kafka:9092", "kafka-0:9092,kafka-1:9092"])
def test_the_tutorials_application_is_told_of_all_brokers(servers: str, tmp_path: Path) -> None:
    page = (DOCS / "tutorials" / "in-a-cluster.md").read_text()
    [(command, name)] = re.findall(r"^(sed .* (\S+\.yaml)) \| kubectl apply -f -$", page, re.M)
    (tmp_path / name).write_text((DOCS / "examples" / "application" / "deployments.yaml").read_text())

    printed = pasted(command, tmp_path, KAFKA=servers)

    assert printed.count(f'value: "{servers}"') == 2
    assert "kafka.kafka:9092" not in printed


def test_the_audit_is_found_once_a_releases_archive_is_unpacked(tmp_path: Path) -> None:
    page = (DOCS / "how-to" / "audit-a-cluster.md").read_text()
    blocks = [dedent(block) for block in re.findall(r"^ *```sh\n(.*?)^ *```", page, re.M | re.S)]
    [unpack] = [block for block in blocks if "tar -xzf" in block]
    [audit] = [block for block in blocks if "--html" in block]
    command = tmp_path / "kubectl-tidegate.sh"
    command.write_text("#!/bin/sh\necho $1\n")
    command.chmod(0o755)
    [archive] = re.findall(r"tar -xzf (\S+)", unpack)
    with tarfile.open(tmp_path / archive, "w:gz") as packed:
        packed.add(command, "kubectl-tidegate")

    assert pasted(unpack + audit, tmp_path) == "audit\n"


def test_completions_are_found_once_they_are_linked_beside_a_link_of_krews(tmp_path: Path) -> None:
    [command] = re.findall(r"`(ln -s .*kubectl_complete-tidegate.*?)`", (DOCS / "reference" / "cli.md").read_text())
    store, found = tmp_path / "store", tmp_path / "bin"
    for folder in (store, found):
        folder.mkdir()
    for name in ("kubectl-tidegate", "kubectl_complete-tidegate"):
        (store / name).write_text(SCRIPT)
        (store / name).chmod(0o755)
    (found / "kubectl-tidegate").symlink_to(store / "kubectl-tidegate")
    path = f"{found}{os.pathsep}{os.environ['PATH']}"

    pasted(command, tmp_path, PATH=path, HOME=str(tmp_path))

    assert pasted("kubectl_complete-tidegate appr", tmp_path, PATH=path) == "completing\n"
