"""What a condition implies of a record's bytes, so that most records need not be taken apart to be ruled out.

Where a field of a JSON document has to equal a text, the bytes of that text are somewhere in the document, unless it is
written otherwise there. So only what can't be written otherwise counts:

* *A text* of letters, digits, blanks and ``_-``: as a string it may be written with escapes (RFC 8259, section 7), then
  there is a backslash in the document. Spark gives a whole number by its digits, and any other with a ``.``, which the
  text has not; nor is it one that Spark puts together of an object or an array, which has brackets.
* *A whole number*, where the schema has one: Spark takes no other spelling for it.

Bytes of US-ASCII mean themselves in UTF-8 wherever they are, in malformed documents as well.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from pyspark.sql import Column

_EXPRESSIONS: Final = "org.apache.spark.sql.catalyst.expressions."
_BINARY_COLUMNS: Final = frozenset({"key", "value"})
_WHOLE_NUMBERS: Final = frozenset({"smallint", "int", "bigint"})
"""No tinyint: what reads JSON for Spark takes 200 for -56 there."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9 _-]+", re.ASCII)
_NO_NUMBERS: Final = re.compile(r"-?(infinity|nan|\d+e-?\d+)", re.ASCII | re.IGNORECASE)
"""What numbers that are none, too large or too small become: in the document they look otherwise."""


class Tree(Protocol):
    """How to look at Catalyst's expressions."""

    def class_of(self, node: Any) -> str: ...

    def sequence(self, found: Any) -> list[Any]: ...


Bytes = tuple[str, bytes, bool]
"""Column, the bytes that are in it, and whether a backslash may be there in their place."""

Implied = Sequence[Sequence[Bytes]]
"""Of each of these at least one."""


def implied(tree: Tree, condition: Any, *, record: str) -> Implied:
    """What holds for every record for which ``condition`` is true. ``record``: the column that is made of the value."""
    kind = tree.class_of(condition).removeprefix(_EXPRESSIONS)
    if kind == "And":
        return [one for child in tree.sequence(condition.children()) for one in implied(tree, child, record=record)]
    if kind == "Or":
        sides = [implied(tree, child, record=record) for child in tree.sequence(condition.children())]
        # Of each side one demand at most: all pairs of them would be more than it is worth.
        return [[any_of for side in sides for any_of in side[0]]] if all(sides) else []
    if kind in ("EqualTo", "EqualNullSafe"):
        left, right = condition.left(), condition.right()
        one = _equals(tree, left, right, record) or _equals(tree, right, left, record)
        return [[one]] if one else []
    if kind == "In":
        found = [_equals(tree, condition.value(), literal, record) for literal in tree.sequence(condition.list())]
        return [[one for one in found if one]] if all(found) else []
    return []


def holds(demands: Implied) -> Column | None:
    """Whether a record has the bytes it has to have; ``None``: nothing is known of them."""
    from pyspark.sql import functions as f

    def has(column: str, text: bytes) -> Column:
        return f.contains(f.col(column), f.lit(bytearray(text)))

    found = [
        reduce(
            lambda one, other: one | other,
            [has(column, text) for column, text, _ in any_of]
            + [has(column, b"\\") for column in sorted({column for column, _, escaped in any_of if escaped})],
        )
        for any_of in demands
    ]
    return reduce(lambda one, other: one & other, found) if found else None


def _equals(tree: Tree, field: Any, literal: Any, record: str) -> Bytes | None:
    if tree.class_of(literal) != f"{_EXPRESSIONS}Literal" or literal.value() is None:
        return None
    kind, text = str(literal.dataType().catalogString()), str(literal.value())
    if str(field.dataType().catalogString()) != kind:
        return None
    column = _document(tree, field, record)
    if column is None:
        return None
    if kind == "string" and _PLAIN.fullmatch(text) and not _NO_NUMBERS.fullmatch(text):
        return column, text.encode(), True
    if kind in _WHOLE_NUMBERS and column == "value" and _is_of_schema(tree, field):
        return column, text.encode(), False
    return None


def _is_of_schema(tree: Tree, field: Any) -> bool:
    return tree.class_of(field) == f"{_EXPRESSIONS}GetStructField"


def _document(tree: Tree, field: Any, record: str) -> str | None:
    """The column that ``field`` is a field of, if it is a JSON document."""
    kind = tree.class_of(field).removeprefix(_EXPRESSIONS)
    if kind == "GetStructField":
        while tree.class_of(field) == f"{_EXPRESSIONS}GetStructField":
            field = field.child()
        is_record = tree.class_of(field) == f"{_EXPRESSIONS}AttributeReference" and str(field.name()) == record
        return "value" if is_record else None
    if kind != "GetJsonObject":
        return None
    cast = field.json()
    if tree.class_of(cast) != f"{_EXPRESSIONS}Cast" or str(cast.dataType().catalogString()) != "string":
        return None
    child = cast.child()
    if tree.class_of(child) != f"{_EXPRESSIONS}AttributeReference" or str(child.name()) not in _BINARY_COLUMNS:
        return None
    return str(child.name())
