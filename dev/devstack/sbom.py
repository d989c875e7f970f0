"""A bill of materials (CycloneDX) of each image, of all its layers: Python packages, jars, Debian packages, programs.

By Syft, which reads an image's files and asks no network. Releases are described by the same program with the same
settings (``dev/syft.yaml``, ``.github/workflows/release.yml``).
"""

import json
import tempfile
from pathlib import Path

from devstack.archives import stream_archive
from devstack.images import LAYOUT, build_image
from devstack.toolcache import DEV, SYFT, Build, say, toolcache

TARGETS = ("operator", "spark", "agent")
"""Of the Dockerfile: what is released."""


def write_sboms(folder: Path) -> list[Path]:
    """Build the images where something has changed, and write ``<target>.cdx.json`` of each. Needs root.

    Raises `StackError`, and `MissingPrerequisiteError` where something is missing on the machine.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for target in TARGETS:
        path = folder / f"{target}.cdx.json"
        describe(build_image(target), path)
        say(f"wrote {path}")
        written.append(path)
    return written


def describe(image: Path, document: Path) -> None:
    """Write the document of an image, a file that `build_image` returned. Raises `StackError`."""
    syft = SYFT.binary()
    built = json.loads(image.read_text())
    name, _, version = built["name"].rpartition("/")[2].partition(":")
    log = toolcache().root / "logs" / "syft.log"
    log.write_text("")
    with tempfile.TemporaryDirectory(prefix="sbom-", dir=toolcache().root / "tmp") as folder:
        archive = Path(folder, "image.tar")
        with archive.open("wb") as target:
            stream_archive(target, image.parent / LAYOUT, built["name"], built["manifest"], present=())
        # Written beside it first: a document is a whole one.
        unfinished = Path(folder, "document")
        command = [str(syft), "scan", f"oci-archive:{archive}", "--quiet", f"--config={DEV / 'syft.yaml'}"]
        command += [f"--source-name={name}", f"--source-version={version}", f"--output=cyclonedx-json={unfinished}"]
        Build(Path(folder), log).run(command)
        document.write_bytes(unfinished.read_bytes())
