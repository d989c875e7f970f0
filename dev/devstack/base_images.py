"""Stand-ins for the public base images that the Dockerfile names, made on this machine: no registry is needed.

``debian:bookworm-slim`` is a minimal Debian by debootstrap; ``python:3.12-slim-bookworm`` is that with a Python 3.12 of
this machine in ``/usr/local``. The Dockerfile names the public images by digest, which a stand-in cannot have: it is
told to build on these by its arguments.
"""

import os
import platform
import shutil
import stat
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from devstack import prerequisites
from devstack.archives import write_archive
from devstack.errors import MissingPrerequisiteError
from devstack.toolcache import Build, toolcache

DEBIAN = "docker.io/library/debian:bookworm-slim"
PYTHON = "docker.io/library/python:3.12-slim-bookworm"

_SUITE = "bookworm"
_CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
_PYTHON_NEEDS = (
    *("libbz2-1.0", "libexpat1", "libffi8", "liblzma5", "libncursesw6", "libreadline8", "libsqlite3-0", "libssl3"),
    *("libuuid1", "netbase", "tzdata", "zlib1g"),
)
# This machine's authorities, for pip and uv in builds: a company's network may have one of its own.
_ENVIRONMENT = [
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    f"PIP_CERT=/{_CERTIFICATES}",
    f"SSL_CERT_FILE=/{_CERTIFICATES}",
]


def debian_archive() -> Path:
    """A docker-archive of ``debian:bookworm-slim``."""

    def fill(build: Build, root: Path) -> None:
        mirror = _mirror()
        debootstrap = prerequisites.program("debootstrap") or "debootstrap"
        command = [debootstrap, "--variant=minbase", "--include=ca-certificates", _SUITE, str(root)]
        build.run([*command, *([mirror] if mirror else [])])
        bundle, own = Path("/", _CERTIFICATES), Path("/usr/local/share/ca-certificates")
        if bundle.is_file():
            shutil.copyfile(bundle, root / _CERTIFICATES)
        shutil.copytree(own, root / own.relative_to("/"), dirs_exist_ok=True)  # Java makes its store of these
        sources = Path("/etc/apt/sources.list.d/debian.sources")
        if sources.is_file():
            shutil.copyfile(sources, root / "etc/apt/sources.list.d/debian.sources")
            (root / "etc/apt/sources.list").write_text("")
        _make_slim(root)

    return _archive("debian-base", DEBIAN, ["bash"], fill, [_recipe()], "20 s to 1 min")


def python_archive() -> Path:
    """A docker-archive of ``python:3.12-slim-bookworm``. Raises `MissingPrerequisiteError` without a Python 3.12."""
    debian = debian_archive()
    prefix = _python_prefix()

    def fill(build: Build, root: Path) -> None:
        build.run(["tar", "-C", str(build.folder), "-xf", str(debian), "layer.tar"])
        build.run(["tar", "-C", str(root), "--numeric-owner", "-xf", str(build.folder / "layer.tar")])
        for name, minor in (("null", 3), ("urandom", 9)):  # apt-get needs them; the image goes without
            os.mknod(root / "dev" / name, stat.S_IFCHR, os.makedev(1, minor))
            (root / "dev" / name).chmod(0o666)
        shutil.copyfile("/etc/resolv.conf", root / "etc/resolv.conf")
        environment = {"DEBIAN_FRONTEND": "noninteractive", "PATH": _ENVIRONMENT[0].removeprefix("PATH=")}

        def inside(*command: str) -> None:
            build.run(["chroot", str(root), *command], env=environment)

        inside("apt-get", "update", "-qq")
        inside("apt-get", "install", "-y", "-qq", "--no-install-recommends", *_PYTHON_NEEDS)
        _make_slim(root)
        local = root / "usr/local"
        left_out = shutil.ignore_patterns("test", "tests", "__pycache__", "*.a", "site-packages", "bin", "share")
        shutil.copytree(prefix, local, symlinks=True, dirs_exist_ok=True, ignore=left_out)
        (local / "lib/python3.12/site-packages").mkdir(exist_ok=True)
        shutil.copy2(prefix / "bin/python3.12", local / "bin/python3.12")
        if strip := shutil.which("strip"):
            subprocess.run([strip, "--strip-unneeded", *local.glob("lib/libpython3.12.so.*")], check=False)
        for link in ("python3", "python"):
            (local / "bin" / link).symlink_to("python3.12")
        inside("ldconfig")
        inside("/usr/local/bin/python3.12", "-m", "ensurepip")
        (local / "bin/pip").symlink_to("pip3.12")

    made_from: list[Path | str] = [_recipe(), debian, str(prefix), (prefix / "bin/python3.12").as_posix()]
    return _archive("python-base", PYTHON, ["python3"], fill, made_from, "20 to 40 s")


def _recipe() -> Path:
    return Path(__file__)


def _archive(
    name: str,
    reference: str,
    command: Sequence[str],
    fill: Callable[[Build, Path], None],
    made_from: Sequence[Path | str],
    first_time: str,
) -> Path:
    def build(build: Build) -> None:
        root, layer = build.folder / "root", build.folder / "layer.tar"
        root.mkdir(mode=0o755)
        fill(build, root)
        (root / "etc/resolv.conf").unlink(missing_ok=True)
        build.run(["tar", "--numeric-owner", "--exclude=./dev/*", "-C", str(root), "-cf", str(layer), "."])
        config = {"Cmd": list(command), "Env": _ENVIRONMENT}
        write_archive(build.folder / "image.tar", reference, layer, config, platform.machine())
        layer.unlink()
        shutil.rmtree(root)

    folder = toolcache().artifact(
        name,
        [str(part) if isinstance(part, Path) and part.suffix == ".tar" else part for part in made_from],
        build,
        label=reference.rpartition("/")[2],
        first_time=first_time,
    )
    return folder / "image.tar"


def _mirror() -> str | None:
    """The mirror that this machine uses; None: debootstrap's own default."""
    sources = Path("/etc/apt/sources.list.d/debian.sources")
    if sources.is_file():
        for line in sources.read_text().splitlines():
            if line.startswith("URIs:"):
                return line.split()[1]
    return None


def _make_slim(root: Path) -> None:
    """Remove what the public image goes without, too: packages, their indexes, documentation, translations."""
    for cached in (*(root / "var/cache/apt/archives").glob("*.deb"), *(root / "var/cache/apt").glob("*.bin")):
        cached.unlink()
    for folder in ("var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale"):
        for entry in (root / folder).iterdir():
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()


def _python_prefix() -> Path:
    """Where a Python 3.12 lies that can be copied: of pyenv, of uv, or the one on ``PATH`` if it is not Debian's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    managed = Path(os.environ.get("UV_PYTHON_INSTALL_DIR", Path.home() / ".local/share/uv/python"))
    found = [*sorted(pyenv.glob("3.12.*")), *sorted(managed.glob("cpython-3.12.*"))]
    on_path = shutil.which("python3.12")
    if on_path:
        asked = [on_path, "-c", "import sys; print(sys.base_prefix)"]
        prefix = Path(subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() or "/usr")
        if prefix != Path("/usr"):  # there, its files lie among Debian's
            found.append(prefix)
    for prefix in reversed(found):
        if (prefix / "bin/python3.12").is_file():
            return prefix
    raise MissingPrerequisiteError(
        "missing: a Python 3.12 to copy into the base image; install it: e.g. uv python install 3.12, or with pyenv"
    )
