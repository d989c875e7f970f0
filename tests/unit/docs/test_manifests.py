"""Every manifest in the documents is one that would be taken."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from corpus.reading import SPECS
from tidegate.resources.base import parse_spec

ROOT: Final = Path(__file__).resolve().parents[3]
DOCS: Final = ROOT / "docs"
PAGES: Final = (*sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("agents/*/README.md")))

GITOPS: Final = {
    ("source.toolkit.fluxcd.io/v1", "GitRepository"): ("interval", "url"),
    ("helm.toolkit.fluxcd.io/v2", "HelmRelease"): ("interval", "chart"),
    ("kustomize.toolkit.fluxcd.io/v1", "Kustomization"): ("interval", "path", "prune", "sourceRef"),
    ("argoproj.io/v1alpha1", "Application"): ("project", "source", "destination"),
    ("argoproj.io/v1alpha1", "ApplicationSet"): ("generators", "template"),
}
"""What these kinds require under ``spec``."""


def fenced(page: Path) -> Iterator[Any]:
    """Manifests of the three kinds in the page's YAML blocks; parts of manifests are none."""
    for block in re.findall(r"^( *)```yaml\n(.*?)^ *```", page.read_text(), re.MULTILINE | re.DOTALL):
        indent, text = block
        plain = re.sub(rf"^{indent}", "", text, flags=re.MULTILINE)
        for body in yaml.safe_load_all(plain):
            if isinstance(body, dict) and body.get("kind") in SPECS:
                yield pytest.param(body, id=f"{page.relative_to(ROOT)}-{body['metadata']['name']}")


MANIFESTS: Final = [manifest for page in PAGES for manifest in fenced(page)]
HEADINGS: Final = {
    (page.relative_to(ROOT).as_posix(), tuple(line.split()))
    for page in PAGES
    for line in page.read_text().splitlines()
    if re.fullmatch(r"NAME +[A-Z ]* AGE", line)
}
"""Of tables as kubectl prints them."""
EXAMPLES: Final = sorted(DOCS.glob("examples/**/*.yaml"))


@pytest.mark.parametrize("body", MANIFESTS)
def test_a_manifest_in_a_page_is_valid(body: dict[str, Any]) -> None:
    assert body["apiVersion"] == "tidegate.io/v1alpha1"
    parse_spec(SPECS[body["kind"]], body)


def test_pages_have_manifests_of_each_kind() -> None:
    assert {manifest.values[0]["kind"] for manifest in MANIFESTS} == set(SPECS)


def test_a_table_in_a_page_has_the_columns_that_kubectl_prints() -> None:
    printed = set()
    for crd in sorted((ROOT / "crds").glob("*.tidegate.io.yaml")):
        for version in yaml.safe_load(crd.read_text())["spec"]["versions"]:
            columns = version["additionalPrinterColumns"]
            # A column with a priority is one of `-o wide`.
            for shown in (columns, [column for column in columns if not column.get("priority")]):
                printed.add(("NAME", *(column["name"].upper() for column in shown)))

    assert len(HEADINGS) > 10
    assert {(page, heading) for page, heading in HEADINGS if heading not in printed} == set()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(DOCS)))
def test_an_example_for_gitops_tools_has_what_its_kind_requires(path: Path) -> None:
    for body in yaml.safe_load_all(path.read_text()):
        required = GITOPS.get((body["apiVersion"], body["kind"]), ())
        assert set(required) <= set(body.get("spec", {}))
        if body["kind"] != "Kustomization" or "spec" in body:
            assert body["metadata"]["name"]
    assert {"flux", "argocd"} <= {each.parent.name for each in EXAMPLES}
