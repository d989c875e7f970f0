"""Image archives: made from one layer without a container tool, and read out of an OCI layout."""

import hashlib
import io
import json
import tarfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO, Any

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
        _add(tar, "manifest.json", manifest)
        _add(tar, name, encoded)
        _add(tar, "layer.tar", layer)


def stream_archive(target: IO[bytes], layout: Path, name: str, manifest: str, present: Collection[str]) -> None:
    """Write an OCI archive of one image of an OCI layout to a pipe, without the blobs whose digests are `present`.

    `name` is the image's reference, `manifest` its manifest's digest (``sha256:...``).
    """

    def blob(digest: str) -> Path:
        return layout / "blobs" / digest.replace(":", "/")

    encoded = blob(manifest).read_bytes()
    content = json.loads(encoded)
    descriptor = {
        "mediaType": content.get("mediaType", "application/vnd.oci.image.manifest.v1+json"),
        "digest": manifest,
        "size": len(encoded),
        # Where containerd finds the reference.
        "annotations": {"io.containerd.image.name": name},
    }
    parts = [manifest, content["config"]["digest"], *(layer["digest"] for layer in content["layers"])]
    with tarfile.open(fileobj=target, mode="w|") as tar:
        _add(tar, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(tar, "index.json", json.dumps({"schemaVersion": 2, "manifests": [descriptor]}).encode())
        for digest in dict.fromkeys(parts):
            if digest not in present:
                _add(tar, f"blobs/{digest.replace(':', '/')}", blob(digest))


def _add(tar: tarfile.TarFile, name: str, content: bytes | Path) -> None:
    info = tarfile.TarInfo(name)
    if isinstance(content, bytes):
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
        return
    info.size = content.stat().st_size
    with content.open("rb") as file:
        tar.addfile(info, file)
