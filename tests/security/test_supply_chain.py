"""Whoever swaps what is fetched (a base image, a jar, a package, an action) is noticed: all is named by digests."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
import zipfile
from pathlib import Path
from typing import Any, Final

import pyspark
import pytest
import yaml

from devstack import tools
from devstack.checksums import verify_jars
from devstack.errors import StackError
from devstack.images import BASES

ROOT: Final = Path(__file__).resolve().parents[2]
WORKFLOWS: Final = sorted((ROOT / ".github" / "workflows").glob("*.y*ml"))
_TRACKED: Final = subprocess.run(
    ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"],
    capture_output=True,
    text=True,
    check=True,
).stdout.splitlines()
DOCKERFILES: Final = sorted(ROOT / name for name in _TRACKED if Path(name).name == "Dockerfile")
MODULES: Final = sorted((ROOT / name).parent for name in _TRACKED if Path(name).name == "go.mod")

BY_DIGEST: Final = re.compile(r"\S+@sha256:[0-9a-f]{64}")
OURS: Final = re.compile(r"tidegate-[a-z]+:dev")
"""Built from this tree a moment before."""
BY_COMMIT: Final = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _commands(dockerfile: Path) -> list[str]:
    """The Dockerfile's instructions, each on one line."""
    text = re.sub(r"^#.*\n", "", dockerfile.read_text(), flags=re.MULTILINE)
    return re.sub(r"\\\n\s*", " ", text).splitlines()


# --- base images ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=_name)
def test_every_base_image_is_named_by_its_digest(dockerfile: Path) -> None:
    commands = _commands(dockerfile)
    arguments = dict(line.removeprefix("ARG ").split("=", 1) for line in commands if re.match(r"ARG \w+=", line))
    stages, loose = {"scratch"}, list[str]()
    for base, _, stage in re.findall(r"^FROM (\S+)( AS (\S+))?", "\n".join(commands), re.MULTILINE):
        image = arguments[base[2:-1]] if base.startswith("${") else base
        if image not in stages and not BY_DIGEST.fullmatch(image) and not OURS.fullmatch(image):
            loose.append(image)
        stages.add(stage)
    assert loose == []
    assert len(stages) > 1


def test_dockerfiles_are_found() -> None:
    assert {"Dockerfile", "dev/spark-operator/Dockerfile"} <= {_name(path) for path in DOCKERFILES}


def test_stand_ins_replace_each_public_base_and_nothing_else() -> None:
    """What tests in pods build on has the name of the public image, so the same distribution and Python."""
    for dockerfile in DOCKERFILES:
        for name, image in re.findall(r"^ARG (\w+_IMAGE)=(\S+@\S+)$", dockerfile.read_text(), re.MULTILINE):
            assert image.partition("@")[0] == BASES[name]


# --- Python packages --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["requirements.lock", *(f"dev/python/{name}.txt" for name in ("uv", "build", "release", "site", "mutants"))],
)
def test_every_python_package_has_a_hash(name: str) -> None:
    lines = (ROOT / name).read_text().replace("\\\n", "").splitlines()
    packages = [line for line in lines if line and not line.lstrip().startswith("#")]
    assert packages
    assert [line for line in packages if not re.match(r"[\w.-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", line)] == []


@pytest.mark.parametrize("file", [ROOT / "Dockerfile", ROOT / "Makefile"], ids=_name)
def test_whatever_is_installed_is_held_to_these_hashes(file: Path) -> None:
    text = re.sub(r"\\\n\s*", " ", file.read_text())
    installs = re.findall(r"(?:pip install|pip sync) [^&;|}\n]*", text)
    held = ("--require-hashes", "--constraints requirements.lock", "--build-constraints ")
    assert len(installs) >= 3
    assert [line for line in installs if not any(option in line for option in held)] == []


def test_what_builds_the_packages_is_what_they_ask_for() -> None:
    listed = (ROOT / "dev/python/build.in").read_text().splitlines()[-1]
    for project in ("pyproject.toml", "agents/python/pyproject.toml"):
        assert tomllib.loads((ROOT / project).read_text())["build-system"]["requires"] == [listed]


# --- jars, Go modules, npm --------------------------------------------------------------------------------------------


def _fetched(folder: Path, **jars: str) -> Path:
    for name, content in jars.items():
        (folder / f"{name}.jar").write_text(content)
    return folder


@pytest.fixture
def sums(tmp_path: Path) -> Path:
    path = tmp_path / "jars.sha256"
    # printf good | sha256sum
    path.write_text("770e607624d689265ca6c44884d0807d9b054d23c473c106c72be9de08b7376c  a.jar\n")
    return path


def test_jars_that_are_listed_are_taken(tmp_path: Path, sums: Path) -> None:
    verify_jars(_fetched(tmp_path, a="good"), sums)


@pytest.mark.parametrize(
    ("jars", "said"),
    [
        pytest.param({"a": "evil"}, r"a\.jar has sha256 \w+, listed is 770e", id="another content"),
        pytest.param({"a": "good", "b": "more"}, r"b\.jar is not listed", id="one more"),
        pytest.param({}, r"a\.jar was not fetched", id="one less"),
    ],
)
def test_other_jars_are_refused(tmp_path: Path, sums: Path, jars: dict[str, str], said: str) -> None:
    with pytest.raises(StackError, match=said):
        verify_jars(_fetched(tmp_path, **jars), sums)


def test_jars_without_a_list_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="there is no"):
        verify_jars(_fetched(tmp_path, a="good"), tmp_path / "missing.sha256")


@pytest.mark.parametrize("tool", [tool for tool in tools.NODE if tool.made_by == "Maven"], ids=lambda tool: tool.name)
def test_every_tool_of_jars_has_a_list_of_them(tool: Any) -> None:
    [listed] = [part for part in tool.made_from if isinstance(part, Path) and part.suffix == ".sha256"]
    lines = listed.read_text().splitlines()
    assert lines
    assert [line for line in lines if not re.fullmatch(r"[0-9a-f]{64}  [\w.-]+\.jar", line)] == []


def test_images_take_listed_jars_only() -> None:
    """That of Spark, and that of the agents."""
    fetching = [line for line in _commands(ROOT / "Dockerfile") if "copy-dependencies" in line]
    assert len(fetching) == 2
    for fetch in fetching:
        assert "sha256sum --quiet --strict --check /src/jars.sha256" in fetch
        assert '[ "$(ls)" = "$(cut -c 67- /src/jars.sha256)" ]' in fetch


def test_jars_without_a_manifest_are_named_for_the_bill_of_materials() -> None:
    """Syft passes them over."""
    left_out = (ROOT / "dev/spark/left-out-jars").read_text().splitlines()
    there = [jar for jar in (Path(pyspark.__file__).parent / "jars").glob("*.jar") if jar.name not in left_out]
    assert len(there) > 100
    unnamed = {jar.name for jar in there if "META-INF/MANIFEST.MF" not in zipfile.ZipFile(jar).namelist()}
    parts = json.loads((ROOT / "dev/spark/jars-without-manifest.cdx.json").read_text())["components"]
    assert {f"{part['name']}-{part['version']}-{part['purl'].partition('=')[2]}.jar" for part in parts} == unnamed


def test_what_the_java_agent_has_in_it_is_named_for_the_bill_of_materials() -> None:
    """Under names of its own, by which Syft does not know it."""
    listed = {line.split()[1] for line in (ROOT / "agents/java/jars.sha256").read_text().splitlines()}
    parts = json.loads((ROOT / "agents/java/relocated.cdx.json").read_text())["components"]
    assert {f"{part['name']}-{part['version']}.jar" for part in parts} == listed
    assert all(part["purl"] == f"pkg:maven/{part['group']}/{part['name']}@{part['version']}" for part in parts)


@pytest.mark.parametrize("module", MODULES, ids=_name)
def test_every_go_module_has_the_hashes_of_what_it_requires(module: Path) -> None:
    text = (module / "go.mod").read_text()
    replaced = {old: (new, version) for old, new, version in re.findall(r"(\S+/\S+) => (\S+) (v\S+)", text)}
    named = re.findall(r"^\s*(?:require )?(\S+/\S+) (v\S+)", text, re.MULTILINE)
    required = [replaced.get(name, (name, version)) for name, version in named]
    sums = module / "go.sum"
    known = set(re.findall(r"^(\S+) (v\S+?)(?:/go\.mod)? h1:", sums.read_text(), re.MULTILINE)) if required else set()
    assert [one for one in required if one not in known] == []


def test_every_npm_package_has_a_hash() -> None:
    locks = [ROOT / name for name in _TRACKED if Path(name).name == "package-lock.json"]
    assert locks
    for lock in locks:
        packages = json.loads(lock.read_text())["packages"]
        assert [name for name, package in packages.items() if name and "integrity" not in package] == []


# --- releases ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=_name)
def test_every_action_is_named_by_its_commit(workflow: Path) -> None:
    used = re.findall(r"^\s*(?:- )?uses: (.+)$", workflow.read_text(), re.MULTILINE)
    assert used
    assert [action for action in used if not BY_COMMIT.fullmatch(action)] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=_name)
def test_a_workflow_has_no_permission_that_a_job_does_not_ask_for(workflow: Path) -> None:
    content = yaml.safe_load(workflow.read_text())
    assert content["permissions"] == {}
    for job in content["jobs"].values():
        assert "permissions" in job
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=_name)
def test_nothing_that_others_write_becomes_part_of_a_script(workflow: Path) -> None:
    content = yaml.safe_load(workflow.read_text())
    scripts = [step["run"] for job in content["jobs"].values() for step in job["steps"] if "run" in step]
    assert scripts
    assert [script for script in scripts if "${{" in script] == []


def test_a_release_pushes_only_what_was_tested_described_and_scanned_and_signs_what_it_pushed() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    assert jobs["image"]["needs"] == "test"
    assert jobs["test"]["permissions"] == {"contents": "read"}
    steps = [step.get("run", "") + step.get("uses", "") for step in jobs["image"]["steps"]]
    order = ["buildah build", "syft scan", "grype ", "skopeo copy", "cosign sign", "actions/attest@"]
    places = [next(index for index, step in enumerate(steps) if what in step) for what in order]
    assert places == sorted(places)
    assert "cosign attest --yes --type cyclonedx" in "".join(steps)


def test_a_release_is_published_last_and_as_it_was_attested() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    assert jobs["publish-agent"]["needs"] == ["index", "files"]
    assert jobs["publish"]["needs"] == "publish-agent"
    assert (jobs["index"]["needs"], jobs["files"]["needs"]) == ("image", "test")
    drafted = "".join(step.get("run", "") for step in jobs["files"]["steps"])
    assert "--draft " in drafted
    # All that others could see or fetch, and what has to be before it.
    for job, publishes in (
        ("publish-agent", ["publish --trusted-publishing"]),
        ("publish", ["helm push", "publish --trusted-publishing", "--draft=false"]),
    ):
        script = "".join(step.get("run", "") for step in jobs[job]["steps"])
        checked = script.index("sha256sum --check --strict"), script.index("gh attestation verify")
        assert max(checked) < min(script.index(what) for what in publishes)
        assert "make " not in script


@pytest.mark.parametrize("tool", ["syft", "grype"])
def test_what_describes_and_scans_a_release_is_of_a_module_with_hashes(tool: str) -> None:
    assert f"dev/go/{tool}" in [_name(module) for module in MODULES]
    assert f'import _ "github.com/anchore/{tool}/cmd/{tool}"' in (ROOT / f"dev/go/{tool}/tools.go").read_text()


def test_a_release_is_refused_for_severe_vulnerabilities_and_each_exception_has_a_reason() -> None:
    settings = yaml.safe_load((ROOT / "dev/grype.yaml").read_text())
    assert settings["fail-on-severity"] == "high"
    assert [one for one in settings["ignore"] if not one.get("reason") or not one.get("vulnerability")] == []
