"""Where the code decodes: functions that call what makes values out of text or bytes, or are named like it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).resolve().parents[3]
SOURCES: Final = (PROJECT / "operator", PROJECT / "agents" / "python")

METHODS: Final = frozenset(
    {
        "decompress",
        "from_bytes",
        "fromisoformat",
        "load_pem_x509_certificate",
        "load_pem_x509_certificates",
        "model_validate",
        "model_validate_json",
        "model_validate_strings",
        "strptime",
        "validate_json",
        "validate_python",
        "validate_strings",
    }
)
"""By whatever name the object goes that has them."""

FUNCTIONS: Final = frozenset(
    {
        "ast.literal_eval",
        "base64.b64decode",
        "base64.urlsafe_b64decode",
        "csv.DictReader",
        "csv.reader",
        "gzip.GzipFile",
        "gzip.open",
        "json.load",
        "json.loads",
        "marshal.loads",
        "pickle.load",
        "pickle.loads",
        "pydantic_core.from_json",
        "struct.iter_unpack",
        "struct.unpack",
        "struct.unpack_from",
        "tomllib.loads",
        "urllib.parse.parse_qs",
        "yaml.load",
        "yaml.load_all",
        "yaml.safe_load",
        "yaml.safe_load_all",
        "zlib.decompressobj",
    }
)


_WORDS: Final = re.compile(
    "|".join(sorted({*METHODS, *(name.rpartition(".")[2] for name in FUNCTIONS), "decode", "parse"}))
)
"""Without any of them a file is not worth parsing."""

_NAMES: Final = re.compile(r"_?(decode|parse)(_\w+)?")


def decoders(folders: tuple[Path, ...] = SOURCES) -> frozenset[str]:
    """``module:Class.function`` of each, of the innermost function; ``module:`` for a module's own lines."""
    found: set[str] = set()
    for folder in folders:
        for path in folder.rglob("*.py"):
            module = ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
            found |= {f"{module}:{name}" for name in _in(path.read_text(encoding="utf-8"))}
    return frozenset(found)


def _in(source: str) -> Iterator[str]:
    if not _WORDS.search(source):
        return
    tree = ast.parse(source)
    names = _imported(tree)

    def walk(node: ast.AST, inside: tuple[str, ...]) -> Iterator[str]:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            inside = (*inside, node.name)
            if not isinstance(node, ast.ClassDef) and _NAMES.fullmatch(node.name) and not _is_declared_only(node):
                yield ".".join(inside)
        if isinstance(node, (ast.Name, ast.Attribute)) and _decodes(_dotted(node, names)):
            yield ".".join(inside)
        for child in ast.iter_child_nodes(node):
            yield from walk(child, inside)

    yield from walk(tree, ())


def _is_declared_only(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Of a protocol: a docstring and nothing else."""
    last = function.body[-1]
    return isinstance(last, ast.Expr) and isinstance(last.value, ast.Constant)


def _decodes(name: str) -> bool:
    last = name.rpartition(".")[2]
    # Kafka's own encodings are classes of the client library, with a `decode` each.
    of_protocol = last == "decode" and name.split(".")[-2:-1] and name.split(".")[-2].startswith("Consumer")
    return name in FUNCTIONS or ("." in name and last in METHODS) or bool(of_protocol)


def _imported(tree: ast.AST) -> dict[str, str]:
    """What names stand for that a module imports."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {each.asname: each.name for each in node.names if each.asname}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    return names


def _dotted(node: ast.expr, names: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    return f"{_dotted(node.value, names)}.{node.attr}" if isinstance(node, ast.Attribute) else ""
