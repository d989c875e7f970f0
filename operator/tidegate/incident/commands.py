"""Commands that a person is told to copy. They are for the cluster that was asked, whichever is the current one. Pure.

Resources have the same names in clusters that Git fills alike: what undoes a reset in one would undo another's there.
"""

from __future__ import annotations

from shlex import quote

from tidegate.printable import visible


def in_context(context: str | None) -> str:
    """The option, of ``tidegate`` and of ``kubectl``. ``context``: of the kubeconfig; ``None``: none was given."""
    return f" --context {quote(visible(context))}" if context else ""


def place_of(namespace: str, context: str | None) -> str:
    """The options that say where."""
    return f"-n {quote(visible(namespace))}{in_context(context)}"


def command(words: str, name: str, namespace: str, context: str | None) -> str:
    """``words`` with the name of a resource, and where that is."""
    return f"{words} {quote(visible(name))} {place_of(namespace, context)}"
