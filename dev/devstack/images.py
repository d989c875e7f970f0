"""The project's images, built by buildah without a daemon or a registry from the same Dockerfile that Docker builds.

Layers are kept in the cache: a changed line costs a second. Needs root.
"""

import contextlib
import fcntl
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from devstack import prerequisites
from devstack.base_images import DEBIAN, PYTHON, debian_archive, python_archive
from devstack.toolcache import DEV, Build, say, toolcache

PROJECT = DEV.parent
TAG = "dev"
LAYOUT = "layout"
BASES = {"PYTHON_IMAGE": PYTHON, "DEBIAN_IMAGE": DEBIAN}
"""Stand-ins, by the Dockerfiles' arguments for the public images that they name by digest."""


def image_name(target: str) -> str:
    """What a pod calls the image of a target of the Dockerfile: ``docker.io/library/tidegate-<target>:dev``."""
    return f"docker.io/library/tidegate-{target}:{TAG}"


def build_image(
    target: str,
    *,
    name: str | None = None,
    context: Path = PROJECT,
    dockerfile: Path | None = None,
    arguments: Mapping[str, str] | None = None,
) -> Path:
    """Build a target and return the file that `Node.load` takes; quick when nothing has changed.

    `name` is its reference (default: `image_name`), `arguments` the build's, besides those for the base images. The
    file says the reference and the manifest's digest; what it stands for lies in the OCI layout ``layout`` beside it,
    each layer of all images once.
    Raises `StackError` with the log's end.
    """
    prerequisites.node()
    name = name or image_name(target)
    folder = toolcache().root / "images"
    folder.mkdir(parents=True, exist_ok=True)
    short = name.rpartition("/")[2].partition(":")[0]
    log = toolcache().root / "logs" / f"image-{short}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("")
    build = Build(folder, log)
    with _locked():
        _pull_bases(build)
        say(f"building image {short}")
        iid = folder / f"{short}.iid"
        build.run(
            [
                *(*_buildah(), "build", "--layers", "--isolation=chroot", "--network=host", "--pull=never"),
                *(f"--target={target}", f"--tag={name}", f"--iidfile={iid}"),
                *(f"--build-arg={key}={value}" for key, value in {**BASES, **(arguments or {})}.items()),
                *(f"--file={dockerfile or context / 'Dockerfile'}", str(context)),
            ]
        )
        image = iid.read_text().strip().removeprefix("sha256:")
        # One image may have several names, each of which a node knows it by only once it was told.
        called = name.removeprefix("docker.io/library/").removesuffix(f":{TAG}")
        built = folder / f"{called.replace('/', '_').replace(':', '_')}-{image[:12]}.json"
        if not built.exists():
            digest = folder / f"{short}.digest"
            layout = f"oci:{folder / LAYOUT}:{short}"
            # Not by gzip, the default, which takes a minute for Spark; to leave it out is not offered for a layout.
            packed = ["--compression-format=zstd", "--compression-level=1"]
            build.run([*_buildah(), "push", "--quiet", *packed, f"--digestfile={digest}", image, layout])
            unfinished = built.with_suffix(".new")
            unfinished.write_text(json.dumps({"name": name, "manifest": digest.read_text().strip()}))
            unfinished.rename(built)
    return built


@contextlib.contextmanager
def unpacked(target: str) -> Iterator[Path]:
    """The files of the image that `build_image` built last of a target, for reading. Raises `StackError`."""
    log = toolcache().root / "logs" / "unpacked.log"
    log.write_text("")
    build = Build(toolcache().root / "images", log)
    # One name for each target, so that what a killed process has left is taken away by the next.
    container = f"tidegate-unpacked-{target}"
    if container in build.run([*_buildah(), "containers", "--format={{.ContainerName}}"]).split():
        build.run([*_buildah(), "rm", container])
    build.run([*_buildah(), "from", "--pull=never", f"--name={container}", image_name(target)])
    try:
        yield Path(build.run([*_buildah(), "mount", container]).strip())
    finally:
        build.run([*_buildah(), "rm", container])


def _buildah() -> list[str]:
    """buildah with a storage of its own, apart from the user's."""
    root = toolcache().root / "buildah"
    path = prerequisites.program("buildah") or "buildah"
    return [path, f"--root={root}", "--runroot=/run/tidegate-buildah", "--storage-driver=overlay"]


def _pull_bases(build: Build) -> None:
    """Give buildah the base images; again after they were made anew."""
    record = toolcache().root / "images" / "bases.json"
    known: dict[str, str] = json.loads(record.read_text()) if record.exists() else {}
    for name, archive in (("debian", debian_archive()), ("python", python_archive())):
        if known.get(name) != str(archive):
            build.run([*_buildah(), "pull", "--quiet", f"docker-archive:{archive}"])
            known[name] = str(archive)
            record.write_text(json.dumps(known))


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    path = toolcache().root / "locks" / "images.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
