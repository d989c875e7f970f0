"""What the site has besides the files of ``docs``: its navigation, pages of the repository that documents link to, a
sample of each page that commands write, and what draws diagrams.

Called by MkDocs (``hooks`` in ``mkdocs.yml``).
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[2]

SECTIONS: Final = (
    ("Tutorials", "tutorials"),
    ("How to", "how-to"),
    ("Reference", "reference"),
    ("Explanation", "explanation"),
    ("Decisions", "adr"),
    ("Measurements", "benchmarks"),
)
"""Title and folder, in the order of the navigation."""

SAMPLES: Final = {"plan.html": "A plan", "audit.html": "An audit of a cluster"}

MERMAID: Final = ROOT / "build" / "site-node" / "node_modules" / "@mermaid-js" / "tiny"
"""What draws the diagrams, in the reader's browser. The theme asks another host for it where a page lacks it."""

_DRAWS: Final = "assets/mermaid/mermaid.tiny.js"
_LINK: Final = re.compile(r"(\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^()\s]+)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    docs = Path(config.docs_dir)
    config.nav = [{"Tidegate": "README.md"}]
    for title, folder in SECTIONS:
        pages = sorted(f"{folder}/{page.name}" for page in (docs / folder).glob("*.md"))
        index = f"{folder}/README.md"
        if index in pages:  # the page of the section itself
            pages.remove(index)
            pages.insert(0, index)
        config.nav.append({title: pages})
    config.nav.append({"Project": [{page: f"project/{page}"} for page in _project_pages(docs)]})
    config.nav.append({"Samples": ["samples/index.md"]})
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    for page in _project_pages(Path(config.docs_dir)):
        files.append(File.generated(config, f"project/{page}", content=(ROOT / page).read_text(encoding="utf-8")))
    listed = "".join(f"* [{title}]({name})\n" for name, title in SAMPLES.items())
    about = "Pages as `tidegate plan --html` and `tidegate audit` write them, of made-up groups."
    text = f"# Samples\n\n{about}\n\n{listed}"
    files.append(File.generated(config, "samples/index.md", content=text))
    for name in SAMPLES:
        sample = (ROOT / "build" / "samples" / name).read_text(encoding="utf-8")
        files.append(File.generated(config, f"samples/{name}", content=sample))
    for uri, file in ((_DRAWS, MERMAID / "dist" / "mermaid.tiny.js"), ("assets/mermaid/LICENSE", MERMAID / "LICENSE")):
        files.append(File.generated(config, uri, abs_src_path=str(file)))
    return files


def on_page_markdown(markdown: str, *, page: Page, files: Files, **_: object) -> str:
    """Links to files that the site does not have become their names."""
    return _LINK.sub(lambda found: _link(found[1], found[2], page.file.src_uri, files), markdown)


def on_post_page(output: str, *, page: Page, **_: object) -> str:
    """Pages with a diagram have what draws it, ahead of the theme's script; it is 2.5 MB, so others go without."""
    if '<pre class="mermaid">' not in output:
        return output
    script = f'<script src="{posixpath.relpath(_DRAWS, posixpath.dirname(page.url) or ".")}"></script>'
    return output.replace("</head>", f"{script}</head>", 1)


def _link(text: str, target: str, source: str, files: Files) -> str:
    if target.startswith("#") or "://" in target:
        return f"{text}({target})"
    path, hash_sign, anchor = target.partition("#")
    # Where the page lies in the repository, and not in the site.
    home = source.removeprefix("project/") if source.startswith("project/") else f"docs/{source}"
    named = posixpath.normpath(posixpath.join(posixpath.dirname(home), path))
    here = named.removeprefix("docs/") if named.startswith("docs/") else f"project/{named}"
    for uri in (here, f"{here}/README.md"):
        if files.get_file_from_path(uri) is not None:
            return f"{text}({posixpath.relpath(uri, posixpath.dirname(source) or '.')}{hash_sign}{anchor})"
    if (ROOT / named).exists():
        return f"{text[1:-1]} (`{named}`)"
    return f"{text}({target})"  # nothing: the build says so


def _project_pages(docs: Path) -> list[str]:
    """Markdown files of the repository outside ``docs`` that documents link to, as paths from its root."""
    found = set()
    for page in docs.rglob("*.md"):
        for _, target in _LINK.findall(page.read_text(encoding="utf-8")):
            path = Path(posixpath.normpath(posixpath.join(page.parent, target.partition("#")[0])))
            if path.suffix == ".md" and path.is_relative_to(ROOT) and not path.is_relative_to(docs) and path.exists():
                found.add(path.relative_to(ROOT).as_posix())
    return sorted(found)
