"""``make release``: whatever a release consists of, built of a commit into ``dist/``, and tried from there.

Wheels and source distributions, the chart, the CRDs, the Java agent, ``kubectl-tidegate`` for Krew, the tutorial's
application, notes, checksums.
Images are built by ``.github/workflows/release.yml``, of the same commit and version.
"""

import io
import json
import platform
import posixpath
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import Final

from devstack import prerequisites
from devstack.checksums import sha256
from devstack.errors import StackError
from devstack.java_agent import agent_jar
from devstack.release_trial import try_release
from devstack.toolcache import Build, helm_binary, progress, say, toolcache
from devstack.version import checked, version_of

SUMS: Final = "SHA256SUMS"
PLUGIN: Final = "kubectl-tidegate"
_IMAGES: Final = ("operator", "agent", "spark")
_COMPLETING: Final = f"""\
#!/bin/sh
# What kubectl asks for completions of `kubectl tidegate`; links to it may lie in PATH.
exec "$(dirname "$(readlink -f "$0")")/{PLUGIN}" __complete "$@"
"""
_PAGES: Final = ("README.md", "CHANGELOG.md", "agents/python/README.md", "charts/tidegate/README.md")
"""What package indexes and the release's own page show."""
_LINK: Final = re.compile(r"(!?)(\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^()\s:#]+)(#[^()\s]*)?\)")
"""To a file of the tree: whether it is a picture, its text, path and place there."""
_MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class Order:
    """A release that is asked for. Without ``repository`` and ``registry`` nothing in it says where it is published."""

    version: str
    repository: str | None = None
    """The address of the source repository, ``https://...``; Krew's manifest is written only with it."""
    registry: str | None = None
    """Where the images are, as ``registry.example.com/team``: the chart's defaults are in it."""
    tried: bool = True


def make_release(order: Order, project: Path) -> Path:
    """Build it, try it, and only then make it the project's ``dist``, whose path is returned.

    Raises `StackError`: for a version that the tree does not have or the changelog does not describe, for changes that
    are not committed, and where a build or the trial fails. An earlier ``dist`` is there until then.
    """
    _refuse(order, project)
    cache = toolcache().root
    for folder in ("tmp", "logs"):
        (cache / folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="release-", dir=cache / "tmp") as made_in:
        source, made = Path(made_in, "source"), Path(made_in, "dist")
        made.mkdir()
        log = cache / "logs" / "release.log"
        log.write_text("")
        build = Build(Path(made_in), log)
        export(project, source)
        say_where(source, order)
        _make(order, build, source, made, committed_at(project))
        if order.tried:
            try_release(made, source, order.version)
        dist = project / "dist"
        shutil.rmtree(dist, ignore_errors=True)
        shutil.copytree(made, dist)
    say(f"release {order.version} is in {dist}")
    return dist


def _make(order: Order, build: Build, source: Path, made: Path, epoch: str) -> None:
    with progress("building the Python packages", "about 5 s"):
        build_python_packages(build, source, made, epoch)
    with progress("packing the chart", "about 5 s"):
        build.run([str(helm_binary()), "package", str(source / "charts" / "tidegate"), "--destination", str(made)])
    _copy(sorted((source / "crds").glob("*.yaml")), made / f"tidegate-crds-{order.version}.yaml")
    shutil.copyfile(agent_jar(), made / f"tidegate-java-agent-{order.version}.jar")
    (made / "RELEASE_NOTES.md").write_text(notes(source / "CHANGELOG.md", order.version))
    (made / f"tidegate-example-{order.version}.yaml").write_text(example(source, order.registry))
    with progress(f"packing {PLUGIN}", "about 60 s"):
        archive = pack_plugin(build, source, made, order.version)
    if order.repository:
        (made / "tidegate.krew.yaml").write_text(krew_manifest(order, archive))
    write_sums(made)


def _refuse(order: Order, project: Path) -> None:
    version = version_of(project)
    if version != checked(order.version):
        raise StackError(
            f"the tree has version {version}, not {order.version}; `make version VERSION={order.version}` writes it"
        )
    if order.repository and not re.fullmatch(r"https://[\w.-]+(/[\w.-]+)+", order.repository):
        raise StackError(f"{order.repository!r} is not an address like https://git.example.com/team/tidegate")
    if order.registry and not re.fullmatch(r"[\w.-]+(:\d+)?(/[a-z0-9._-]+)*", order.registry):
        raise StackError(f"{order.registry!r} is not a registry like registry.example.com/team")
    notes(project / "CHANGELOG.md", order.version)
    if changed := _git(project, "status", "--porcelain").strip():
        raise StackError(f"a release is of a commit, and these changes are not committed:\n{changed}")


def _git(project: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(project), *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise StackError(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout


def committed_at(project: Path) -> str:
    """When the commit was made, in seconds since 1970: what archives of it give as their files' time."""
    return _git(project, "log", "-1", "--format=%ct").strip()


def export(project: Path, folder: Path) -> None:
    """The commit's files, and nothing else that lies in the tree."""
    archive = subprocess.run(["git", "-C", str(project), "archive", "HEAD"], stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="tar")
    # The agent's distribution has the licence too.
    shutil.copyfile(folder / "LICENSE", folder / "agents" / "python" / "LICENSE")


def say_where(source: Path, order: Order) -> None:
    """Write into an exported tree where the release is published: links, and the images that the chart takes."""
    chart = source / "charts" / "tidegate"
    values = chart / "values.yaml"
    if order.repository:
        pages = f"{order.repository}/blob/v{order.version}"
        links = f'\n[project.urls]\nSource = "{order.repository}"\nChangelog = "{pages}/CHANGELOG.md"\n'
        for package in (source, source / "agents" / "python"):
            with (package / "pyproject.toml").open("a") as described:
                described.write(links)
        with (chart / "Chart.yaml").open("a") as described:
            described.write(f"home: {order.repository}\nsources: [{order.repository}]\n")
        _replace(values, 'runbooks: ""\n', f"runbooks: {pages}/docs/reference/alerts.md\n")
        for name in _PAGES:
            (source / name).write_text(
                with_addresses((source / name).read_text(), name, order.repository, order.version)
            )
    if order.registry:
        for image in _IMAGES:
            name = f"repository: tidegate-{image}\n"
            _replace(values, name, name.replace("tidegate-", f"{order.registry}/tidegate-"))


def with_addresses(text: str, name: str, repository: str, version: str) -> str:
    """A page of the tree with its links to others as addresses, since what shows it elsewhere has only that page.

    `name`: the page's path in the tree.
    """

    def address(found: re.Match[str]) -> str:
        mark, words, target, place = found.groups("")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
        return f"{mark}{words}({repository}/{'raw' if mark else 'blob'}/v{version}/{path}{place})"

    return _LINK.sub(address, text)


def _replace(file: Path, line: str, written: str) -> None:
    text = file.read_text()
    if text.count(line) != 1:
        raise StackError(f"{file} has {text.count(line)} lines {line.strip()!r}, not 1")
    file.write_text(text.replace(line, written))


def build_python_packages(build: Build, source: Path, made: Path, epoch: str) -> None:
    """Wheel and source distribution of operator and agent; the same bytes whenever they are built of one commit."""
    held = ["--build-constraints", str(source / "dev" / "python" / "build.txt"), "--require-hashes"]
    for package in (source, source / "agents" / "python"):
        command = [str(prerequisites.uv()), "build", "--quiet", "--python", sys.executable, *held]
        build.run([*command, "--out-dir", str(made), str(package)], env={"SOURCE_DATE_EPOCH": epoch})
    (made / ".gitignore").unlink(missing_ok=True)


def notes(changelog: Path, version: str) -> str:
    """The changelog's section about a version. Raises `StackError` where it has none, or one without a date."""
    found = re.search(
        rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## \[|\Z)", changelog.read_text(), re.M | re.S
    )
    if found is None:
        raise StackError(
            f"{changelog.name} has no section '## [{version}] - YYYY-MM-DD', which becomes the release's notes; "
            f"`make version VERSION={version}` makes it of what is unreleased. Then commit it"
        )
    return f"# Tidegate {version}\n\n{found.group(1).strip()}\n"


def example(source: Path, registry: str | None) -> str:
    """The tutorial's application as one manifest, for who has the release and no tree of it: programs and Deployments,
    with the release's image."""
    folder = source / "docs" / "examples" / "application"
    head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: application}\ndata:\n"
    programs = [f"  {file.name}: |\n{indent(file.read_text(), '    ')}" for file in sorted(folder.glob("*.py"))]
    deployments = (folder / "deployments.yaml").read_text()
    if registry:
        deployments = deployments.replace("image: tidegate-", f"image: {registry}/tidegate-")
    return f"{head}{''.join(programs)}---\n{deployments}"


def pack_plugin(build: Build, source: Path, made: Path, version: str) -> Path:
    """``kubectl-tidegate`` with a Python of its own, for Linux with this processor and this glibc or a newer one."""
    machine = _MACHINES.get(platform.machine(), platform.machine())
    work = build.folder / "plugin"
    venv = work / "venv"
    uv = str(prerequisites.uv())
    build.run([uv, "venv", "--quiet", "--python", sys.executable, str(venv)])
    install = [uv, "pip", "install", "--quiet", "--python", str(venv / "bin" / "python")]
    build.run([*install, "--require-hashes", "-r", str(source / "dev" / "python" / "release.txt")])
    [wheel] = made.glob("tidegate-*.whl")
    build.run([*install, "--constraints", str(source / "requirements.lock"), str(wheel)])
    start = work / f"{PLUGIN}.py"
    start.write_text("import sys\n\nfrom tidegate.cli.main import main\n\nsys.exit(main())\n")
    command = [str(venv / "bin" / "pyinstaller"), "--noconfirm", "--onedir", "--name", PLUGIN]
    # Commands and the descriptions of Kafka's requests are loaded by name, those of kafka-python from a folder that
    # counts as a package.
    command += ["--collect-submodules", "tidegate.cli", "--collect-data", "tidegate"]
    command += ["--collect-data", "kafka", "--hidden-import", "kafka.protocol.schemas.resources"]
    command += ["--distpath", str(work / "packed"), "--workpath", str(work / "build"), "--specpath", str(work)]
    build.run([*command, str(start)])
    shutil.copyfile(source / "LICENSE", work / "packed" / PLUGIN / "LICENSE")
    completing = work / "packed" / PLUGIN / "kubectl_complete-tidegate"
    completing.write_text(_COMPLETING)
    completing.chmod(0o755)
    archive = made / f"{PLUGIN}-{version}-linux-{machine}.tar.gz"
    # Krew unpacks files and folders only, no links.
    with tarfile.open(archive, "w:gz", dereference=True) as packed:
        packed.add(work / "packed" / PLUGIN, ".", filter=_nobodys)
    return archive


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def krew_manifest(order: Order, archive: Path) -> str:
    """The manifest that Krew installs `archive` by, once it is published beside the others of the release."""
    machine = archive.name.removesuffix(".tar.gz").rpartition("-")[2]
    spec = {
        "version": f"v{order.version}",
        "homepage": order.repository,
        "shortDescription": "Pause and reset live Kafka consumer groups",
        "description": "Looks at Kafka consumer groups and says why they stand still, and pauses partitions of live\n"
        "groups, resets their offsets and undoes it, by the resources of the Tidegate operator or, for\n"
        "what is held in a group, by Kafka alone.\n",
        "platforms": [
            {
                "selector": {"matchLabels": {"os": "linux", "arch": machine}},
                "uri": f"{order.repository}/releases/download/v{order.version}/{archive.name}",
                "sha256": sha256(archive),
                "bin": PLUGIN,
            }
        ],
    }
    # JSON is YAML, and needs no package here.
    document = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "tidegate"},
        "spec": spec,
    }
    return json.dumps(document, indent=2) + "\n"


def write_sums(made: Path) -> None:
    """``SHA256SUMS`` of all the other files, as ``sha256sum --check`` reads it."""
    files = sorted(path for path in made.iterdir() if path.name != SUMS)
    (made / SUMS).write_text("".join(f"{sha256(path)}  {path.name}\n" for path in files))


def _copy(files: list[Path], target: Path) -> None:
    documents = [text for path in files if "kind: CustomResourceDefinition" in (text := path.read_text())]
    target.write_text("---\n".join(text if text.endswith("\n") else f"{text}\n" for text in documents))
