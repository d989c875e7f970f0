"""A release has one version, is of a commit, and says what is wrong before it builds anything; what is built works."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Final

import pytest
import yaml

from devstack.errors import StackError
from devstack.release import (
    Order,
    example,
    export,
    krew_manifest,
    make_release,
    notes,
    say_where,
    with_addresses,
    write_sums,
)
from devstack.release_trial import Block, blocks, play
from devstack.version import PLACES, mentions, version_of, write_version
from support.released import PROJECT, TODAY, clone_for_release, git

CHANGELOG: Final = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- This.\n\n## [0.0.1] - 2026-01-01\n\n- That.\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository of the files in which the version is, all committed."""
    folder = tmp_path / "tree"
    named = sorted(
        {mention.file for mention in mentions(PROJECT)}
        | {Path("charts/tidegate/values.yaml"), Path("agents/python/README.md")}
    )
    for file in named:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text((PROJECT / file).read_text())
    (folder / "LICENSE").write_text("a licence\n")
    (folder / "CHANGELOG.md").write_text(CHANGELOG)
    git(folder.parent, "init", "--quiet", str(folder))
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "A tree")
    return folder


def released(tree: Path, version: str = "0.7.0") -> str:
    write_version(tree, version, TODAY)
    git(tree, "commit", "--quiet", "--all", "--message", f"Release {version}")
    return version


# --- one version ------------------------------------------------------------------------------------------------------


def test_the_version_is_the_same_everywhere() -> None:
    assert version_of(PROJECT) in {mention.version for mention in mentions(PROJECT)}


def test_no_other_file_names_a_release_of_it() -> None:
    """What else did would be wrong in the next one."""
    named = f"tidegate.*{re.escape(version_of(PROJECT))}"
    listed = git(PROJECT, "grep", "--files-with-matches", "--extended-regexp", named, "--", ".", ":!tests").split()
    assert {Path(name) for name in listed} - {mention.file for mention in mentions(PROJECT)} == set()


def test_a_version_is_written_everywhere(tree: Path) -> None:
    changed = write_version(tree, "10.20.30", TODAY)

    assert version_of(tree) == "10.20.30"
    assert {mention.version for mention in mentions(tree)} == {"10.20.30"}
    assert set(changed) == {mention.file for mention in mentions(tree)} | {Path("CHANGELOG.md")}
    assert write_version(tree, "10.20.30", TODAY) == []


def test_what_was_unreleased_becomes_the_versions(tree: Path) -> None:
    write_version(tree, "0.7.0", TODAY)

    assert notes(tree / "CHANGELOG.md", "0.7.0") == "# Tidegate 0.7.0\n\n### Added\n\n- This.\n"
    assert "## [Unreleased]\n\n## [0.7.0] - 2027-02-03\n\n### Added" in (tree / "CHANGELOG.md").read_text()


def test_a_file_with_another_version_is_named(tree: Path) -> None:
    chart = tree / "charts" / "tidegate" / "Chart.yaml"
    chart.write_text(chart.read_text().replace("appVersion: ", "appVersion: 9", 1))

    with pytest.raises(StackError, match=r"these differ:\n  charts/tidegate/Chart\.yaml:\d+: 9"):
        version_of(tree)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[0])
def test_a_place_without_a_version_is_named(tree: Path, place: tuple[str, str]) -> None:
    for file in tree.glob(place[0]):
        file.unlink()

    with pytest.raises(StackError, match="no version is found there"):
        version_of(tree)


@pytest.mark.parametrize("version", ["", "1", "v1.2.3", "1.2", "1.2.3-rc1", "1.2.3\n", "1.2.3; true"])
def test_what_is_no_version_is_refused(tree: Path, version: str) -> None:
    with pytest.raises(StackError, match="is not a version like"):
        write_version(tree, version, TODAY)
    assert git(tree, "status", "--porcelain") == ""


# --- what is refused before anything is built -------------------------------------------------------------------------


def test_a_version_that_the_tree_does_not_have_is_refused(tree: Path) -> None:
    with pytest.raises(StackError, match=r"the tree has version .*, not 5\.6\.7; `make version VERSION=5\.6\.7`"):
        make_release(Order("5.6.7"), tree)


def test_a_version_without_notes_is_refused(tree: Path) -> None:
    with pytest.raises(StackError, match=r"CHANGELOG\.md has no section '## \["):
        make_release(Order(version_of(tree)), tree)


def test_changes_that_are_not_committed_are_refused(tree: Path) -> None:
    version = released(tree)
    (tree / "left.txt").write_text("")

    with pytest.raises(StackError, match=r"not committed:\n\?\? left\.txt"):
        make_release(Order(version), tree)


@pytest.mark.parametrize(
    ("order", "said"),
    [
        pytest.param({"repository": "git.example.com/tidegate"}, "is not an address", id="no scheme"),
        pytest.param({"repository": 'https://example.com/a"\nb = "'}, "is not an address", id="TOML"),
        pytest.param({"registry": "registry.example.com/team # x"}, "is not a registry", id="YAML"),
    ],
)
def test_where_it_is_published_is_checked(tree: Path, order: dict[str, str], said: str) -> None:
    version = released(tree)

    with pytest.raises(StackError, match=said):
        make_release(Order(version, **order), tree)
    assert not (tree / "dist").exists()


# --- what is in it ----------------------------------------------------------------------------------------------------


def test_only_what_is_committed_is_built_and_says_where_it_is_from(tree: Path, tmp_path: Path) -> None:
    (tree / "charts" / "tidegate" / "left.yaml").write_text("")
    source = tmp_path / "source"
    export(tree, source)
    say_where(source, Order("0.7.0", "https://git.example.com/team/tidegate", "registry.example.com:5000/team"))

    assert not (source / "charts" / "tidegate" / "left.yaml").exists()
    assert (source / "agents" / "python" / "LICENSE").read_text() == "a licence\n"
    values = (source / "charts" / "tidegate" / "values.yaml").read_text()
    assert values.count("repository: registry.example.com:5000/team/tidegate-") == 3
    alerts = "https://git.example.com/team/tidegate/blob/v0.7.0/docs/reference/alerts.md"
    assert f"    runbooks: {alerts}\n" in values
    for described in ("pyproject.toml", "agents/python/pyproject.toml"):
        assert 'Source = "https://git.example.com/team/tidegate"' in (source / described).read_text()
    assert "home: https://git.example.com/team/tidegate\n" in (source / "charts/tidegate/Chart.yaml").read_text()
    for page in ("README.md", "agents/python/README.md", "charts/tidegate/README.md"):
        links = re.findall(r"\]\(([^()\s]+)\)", (source / page).read_text())
        ours = [link for link in links if link.startswith("https://git.example.com/team/tidegate/")]
        assert ours
        assert [link for link in links if not link.startswith(("https://", "#"))] == []
        assert [link for link in ours if not (PROJECT / link.split("/v0.7.0/")[1].partition("#")[0]).exists()] == []


def test_links_become_addresses_and_what_is_one_stays() -> None:
    text = "[a](../b.md#c) ![d](e.svg) [f](https://g.example/h) [i](#j) [`k[0]`](l)"

    assert with_addresses(text, "m/n.md", "https://git.example/o", "1.2.3") == (
        "[a](https://git.example/o/blob/v1.2.3/b.md#c) ![d](https://git.example/o/raw/v1.2.3/m/e.svg)"
        " [f](https://g.example/h) [i](#j) [`k[0]`](https://git.example/o/blob/v1.2.3/m/l)"
    )


def test_the_tutorials_application_is_one_manifest_with_the_releases_image() -> None:
    config_map, producer, consumer = yaml.safe_load_all(example(PROJECT, "registry.example.com:5000/team"))

    programs = PROJECT / "docs" / "examples" / "application"
    assert config_map["data"] == {file.name: file.read_text() for file in programs.glob("*.py")}
    for deployment in (producer, consumer):
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        assert container["image"] == f"registry.example.com:5000/team/tidegate-operator:{version_of(PROJECT)}"
        assert container["command"][1].removeprefix("/application/") in config_map["data"]
    assert "image: tidegate-operator:" in example(PROJECT, None)


def test_krew_is_told_what_to_fetch_and_what_it_is(tmp_path: Path) -> None:
    archive = tmp_path / "kubectl-tidegate-0.7.0-linux-arm64.tar.gz"
    archive.write_text("good")

    manifest = json.loads(krew_manifest(Order("0.7.0", "https://git.example.com/tidegate"), archive))

    [platform] = manifest["spec"]["platforms"]
    assert platform == {
        "selector": {"matchLabels": {"os": "linux", "arch": "arm64"}},
        "uri": f"https://git.example.com/tidegate/releases/download/v0.7.0/{archive.name}",
        # printf good | sha256sum
        "sha256": "770e607624d689265ca6c44884d0807d9b054d23c473c106c72be9de08b7376c",
        "bin": "kubectl-tidegate",
    }


def test_sums_are_those_that_sha256sum_checks(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_text("good")
    write_sums(tmp_path)
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    assert subprocess.run(check, cwd=tmp_path, capture_output=True, text=True, check=True).stdout == "a.whl: OK\n"

    (tmp_path / "a.whl").write_text("evil")
    assert subprocess.run(check, cwd=tmp_path, capture_output=True, check=False).returncode == 1


# --- the tutorial is played -------------------------------------------------------------------------------------------

PAGE: Final = """\
# A page

```sh
make demo
```

```sh
make up
eval "$(make -s up)"   # for a clone
number=10
```

```sh
sleep 600 &
printf 'NAME  PHASE   AGE\\nback-%s   Paused  3s\\n' $number
```

```
NAME      PHASE    AGE
back-10   Paused   17m
```

```yaml
not: played
```

```sh
kill $(jobs -p)
```
"""


def played(tmp_path: Path, page: str) -> None:
    document = tmp_path / "page.md"
    document.write_text(page)
    folder = tmp_path / "reader"
    folder.mkdir()
    play(document, folder, os.environ)


def test_a_document_has_its_commands_and_their_tables() -> None:
    assert blocks(PAGE) == [
        Block(7, "number=10\n"),
        Block(
            13,
            "sleep 600 &\nprintf 'NAME  PHASE   AGE\\nback-%s   Paused  3s\\n' $number\n",
            ("NAME      PHASE    AGE", "back-10   Paused   17m"),
        ),
        Block(27, "kill $(jobs -p)\n"),
    ]


def test_a_document_is_played_in_one_shell(tmp_path: Path) -> None:
    played(tmp_path, PAGE)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        pytest.param("number=10", "number=11", r"page\.md:13 printed another table:\n.*\nback-11", id="another table"),
        pytest.param("Paused  3s", "Pausing  3s", "printed another table", id="another phase"),
        pytest.param("number=10", "number=10\nfalse", r"page\.md failed:\nline 7:", id="a command that fails"),
        pytest.param(
            "sleep 600 &", "echo gone; exit 3", r"failed:\nline 13:(.|\n)*gone", id="what it printed is shown"
        ),
    ],
)
def test_a_document_that_is_not_true_is_told(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(StackError, match=said):
        played(tmp_path, PAGE.replace(old, new, 1))


# --- all of it --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This commit, with a changelog that describes its version."""
    return clone_for_release(tmp_path_factory.mktemp("release") / "clone")


@pytest.mark.nightly
@pytest.mark.kafka
@pytest.mark.apiserver
@pytest.mark.maven
@pytest.mark.helm
def test_a_release_is_built_installed_and_used(clone: Path) -> None:
    version = version_of(clone)
    dist = make_release(Order(version, "https://git.example.com/team/tidegate", "registry.example.com/team"), clone)

    assert {path.name for path in dist.iterdir()} >= {
        *(f"tidegate-{version}.tgz", f"tidegate-{version}.tar.gz", f"tidegate-{version}-py3-none-any.whl"),
        *(f"tidegate_agent-{version}.tar.gz", f"tidegate_agent-{version}-py3-none-any.whl"),
        *(f"tidegate-java-agent-{version}.jar", f"tidegate-crds-{version}.yaml"),
        f"tidegate-example-{version}.yaml",
        *("tidegate.krew.yaml", "RELEASE_NOTES.md", "SHA256SUMS"),
    }
    with tarfile.open(next(dist.glob("kubectl-tidegate-*.tar.gz"))) as packed:
        assert [member.name for member in packed if not (member.isreg() or member.isdir())] == []
    sums = (dist / "SHA256SUMS").read_text()
    again = make_release(Order(version, "https://git.example.com/team/tidegate", tried=False), clone)
    python = [line for line in sums.splitlines() if line.endswith((".whl", "0.tar.gz", ".jar"))]
    assert len(python) == 5
    assert [line for line in python if line not in (again / "SHA256SUMS").read_text()] == []


@pytest.mark.nightly
@pytest.mark.kafka
@pytest.mark.apiserver
@pytest.mark.maven
@pytest.mark.helm
def test_a_release_whose_agent_does_nothing_is_refused(clone: Path) -> None:
    """The trial uses what is in the wheel: the tutorial's pause is never obeyed, and there is no ``dist``."""
    (clone / "agents" / "python" / "tidegate_agent.pth").write_text("\n")
    git(clone, "commit", "--quiet", "--all", "--message", "Break the agent")
    with pytest.raises(StackError, match=r"first-pause-and-reset\.md failed:\nline \d+:"):
        make_release(Order(version_of(clone)), clone)
