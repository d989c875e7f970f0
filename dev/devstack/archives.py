"""Image archives (the layout of `docker save`) made from one layer, without a container tool."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def write_archive(archive: Path, reference: str, layer: Path, config: Mapping[str, Any], machine: str) -> None:
    """Write `archive`, an image called `reference` with the tar file `layer` as its only layer.

    `config` is the image configuration's ``config`` (OCI image specification): Cmd, Env, Entrypoint, User. `machine` is
    what `platform.machine` says. The same input gives the same bytes.
    """
    with layer.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    image = {
        "architecture": _ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "created": "2020-01-01T00:00:00Z",
        "config": dict(config),
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "history": [{"created": "2020-01-01T00:00:00Z", "created_by": "tidegate"}],
    }
    encoded = json.dumps(image).encode()
    name = f"{hashlib.sha256(encoded).hexdigest()}.json"
    manifest = json.dumps([{"Config": name, "RepoTags": [reference], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(archive, "w") as tar:
        for entry, content_bytes in (("manifest.json", manifest), (name, encoded)):
            info = tarfile.TarInfo(entry)
            info.size = len(content_bytes)
            tar.addfile(info, io.BytesIO(content_bytes))
        info = tarfile.TarInfo("layer.tar")
        info.size = layer.stat().st_size
        with layer.open("rb") as content:
            tar.addfile(info, content)
