"""Writes what of the chart follows from other files: its copy of the CRDs, and its README from the values' comments.

``make chart`` runs it; a test holds the results equal. Helm packages nothing that lies outside the chart, hence copies.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "charts" / "tidegate"
MARK = "# -- "


def rows(node: yaml.MappingNode, lines: list[str], path: tuple[str, ...] = ()) -> Iterator[tuple[str, str, str]]:
    """(value's path, default as JSON, comment) of each documented value. Raises ``ValueError`` for one that is not."""
    for key, value in node.value:
        here = (*path, str(key.value))
        comment = _comment(lines, key.start_mark.line)
        if comment:
            default = yaml.safe_load(yaml.serialize(value))
            yield ".".join(here), json.dumps(default), comment
        elif isinstance(value, yaml.MappingNode) and value.value:
            yield from rows(value, lines, here)
        else:
            raise ValueError(
                f"values.yaml:{key.start_mark.line + 1}: {'.'.join(here)} has no comment above it: '{MARK}'"
            )


def _comment(lines: list[str], line: int) -> str:
    above: list[str] = []
    for text in reversed(lines[:line]):
        if not text.lstrip().startswith("#"):
            return ""
        above.insert(0, text.lstrip())
        if text.lstrip().startswith(MARK):
            return " ".join(part.removeprefix(MARK).removeprefix("# ") for part in above)
    return ""


def readme() -> str:
    text = (CHART / "values.yaml").read_text()
    node = yaml.compose(text)
    assert isinstance(node, yaml.MappingNode)  # noqa: S101 - a file of ours
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    table = "\n".join(
        f"| `{name}` | `{_cell(default)}` | {_cell(comment)} |"
        for name, default, comment in rows(node, text.splitlines())
    )
    return (CHART / "files" / "README.head.md").read_text().format(**chart) + (
        f"\n## Values\n\n| value | default | meaning |\n| --- | --- | --- |\n{table}\n"
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def crds() -> Mapping[str, str]:
    return {path.name: path.read_text() for path in sorted((ROOT / "crds").glob("*.tidegate.io.yaml"))}


def outdated(*, write: bool) -> list[str]:
    """The files that differ from what they follow from; with ``write`` they are made anew."""
    wanted = {CHART / "files" / "crds" / name: text for name, text in crds().items()} | {CHART / "README.md": readme()}
    stale = [path for path in (CHART / "files" / "crds").glob("*") if path not in wanted]
    changed = [path for path, text in wanted.items() if not path.is_file() or path.read_text() != text]
    if write:
        for path in stale:
            path.unlink()
        for path in changed:
            path.write_text(wanted[path])
    return sorted(str(path.relative_to(ROOT)) for path in (*stale, *changed))


if __name__ == "__main__":
    print("\n".join(outdated(write=True)), file=sys.stderr)
