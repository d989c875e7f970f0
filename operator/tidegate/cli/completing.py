"""Completion in shells: what may come next on a command line, as Cobra's programs say it, and the scripts that ask.

kubectl asks a plugin's ``kubectl_complete-<plugin>`` in this protocol; the scripts for ``tidegate`` itself ask the same
code, so that there is one answer for every shell. No cluster is asked.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidegate.cli.commands import COMMANDS, Command
from tidegate.cli.errors import Parser
from tidegate.cli.screen import Screen

FILES: Final = 0
"""Cobra's ``ShellCompDirectiveDefault``: names of files are completed where nothing else is offered."""

NO_FILES: Final = 4
"""``ShellCompDirectiveNoFileComp``."""

_GROUPS: Final = Command(("groups",), "OPTIONS", "consumer groups, with Kafka alone", "options", "groups")


@dataclass(frozen=True, slots=True)
class Offer:
    """``candidates``: texts with what they mean."""

    candidates: tuple[tuple[str, str], ...]
    directive: int = NO_FILES


def offer(words: Sequence[str]) -> Offer:
    """What may stand in the place of the last of ``words``, which are those that follow the program's name."""
    # bash takes ``--output=json`` for three words.
    *before, typed = [word for word in words if word != "="] or [""]
    command = _command_of(before)
    further = _next_words(before)
    if command is None:
        return _starting(typed, [*further, *([] if before else [("--help", ""), ("--version", "")])])
    return _of_command(command.parser(), before[len(command.words) :], typed, further)


def _next_words(before: Sequence[str]) -> list[tuple[str, str]]:
    """Of commands that begin with ``before``. A word that several have is described by the command that ends with it,
    if there is one."""
    at, found = len(before), dict[str, str]()
    for command in (_GROUPS, *COMMANDS):
        if len(command.words) > at and command.words[:at] == tuple(before):
            ends = len(command.words) == at + 1
            found[command.words[at]] = command.about if ends else found.get(command.words[at], "")
    return sorted(found.items())


def _command_of(before: Sequence[str]) -> Command | None:
    """The longest that ``before`` begins with."""
    named = [c for c in (_GROUPS, *COMMANDS) if tuple(before[: len(c.words)]) == c.words]
    return max(named, key=lambda c: len(c.words), default=None)


def _of_command(
    parser: argparse.ArgumentParser, rest: Sequence[str], typed: str, further: Sequence[tuple[str, str]]
) -> Offer:
    options = {text: action for action in parser._actions for text in action.option_strings}
    waiting = options.get(rest[-1]) if rest else None
    if waiting is not None and waiting.nargs != 0:
        return _values(waiting, typed, "")
    option, equals, value = typed.partition("=")
    if equals and option in options:
        return _values(options[option], value, f"{option}=")
    if typed.startswith("-"):
        given = set(rest)
        free = [
            (text, action.help or "")
            for text, action in options.items()
            if text.startswith("--")
            and (isinstance(action, argparse._AppendAction) or given.isdisjoint(action.option_strings))
        ]
        return _starting(typed, free)
    for action in parser._actions:
        if not action.option_strings and action.choices is not None:
            return _values(action, typed, "")
    return _starting(typed, further)


def _values(action: argparse.Action, typed: str, prefix: str) -> Offer:
    if action.choices is not None:
        return _starting(f"{prefix}{typed}", [(f"{prefix}{choice}", "") for choice in action.choices])
    return Offer((), FILES if action.type is Path else NO_FILES)


def _starting(typed: str, candidates: Sequence[tuple[str, str]]) -> Offer:
    return Offer(tuple((text, about) for text, about in dict(candidates).items() if text.startswith(typed)))


def told(offered: Offer) -> Iterator[str]:
    """Lines in Cobra's protocol: candidates, each with its description behind a tab, then the directive."""
    for text, about in offered.candidates:
        about = about.replace("%%", "%")
        yield f"{text}\t{about}" if about else text
    yield f":{offered.directive}"


def main() -> int:
    """``kubectl_complete-tidegate``, as kubectl calls it."""
    return complete(sys.argv[1:], Screen(sys.stdout, sys.stderr))


def complete(words: Sequence[str], screen: Screen) -> int:
    """0 always: a shell that completes has no place for an error."""
    screen.show("".join(f"{line}\n" for line in told(offer(words))))
    return 0


# --- scripts ----------------------------------------------------------------------------------------------------------


def completion_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tidegate completion",
        description="Print the script that completes tidegate's commands and options in a shell.",
        epilog='In bash: source <(tidegate completion bash). For "kubectl tidegate", kubectl runs '
        "kubectl_complete-tidegate, which is installed with tidegate.",
        allow_abbrev=False,
    )
    parser.add_argument("shell", choices=tuple(_SCRIPTS), help="the shell")
    return parser


def run_completion(arguments: Sequence[str], screen: Screen) -> int:
    """0. Raises ``UsageError``."""
    options = completion_parser().parse_args(list(arguments))
    screen.show(_SCRIPTS[options.shell])
    return 0


_BASH: Final = r"""_tidegate() {
    local lines line directive=0
    COMPREPLY=()
    mapfile -t lines < <(tidegate __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    for line in "${lines[@]}"; do
        case $line in
            :*) directive=${line#:} ;;
            *) COMPREPLY+=("${line%%$'\t'*}") ;;
        esac
    done
    if [[ ${#COMPREPLY[@]} -eq 0 && $directive -eq 0 ]]; then
        compopt -o default 2>/dev/null
    fi
}
complete -F _tidegate tidegate
"""

_ZSH: Final = r"""#compdef tidegate
_tidegate() {
    local -a lines candidates
    local line directive=0
    lines=("${(@f)$(tidegate __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    for line in $lines; do
        case $line in
            :*) directive=${line#:} ;;
            *$'\t'*) candidates+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
            *) candidates+=("${line//:/\\:}") ;;
        esac
    done
    if (( ${#candidates} )); then
        _describe tidegate candidates
    elif (( directive == 0 )); then
        compset -P '--*='
        _files
    fi
}
compdef _tidegate tidegate
if [[ $funcstack[1] == _tidegate ]]; then
    _tidegate
fi
"""

_FISH: Final = r"""function __tidegate_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l lines (tidegate __complete $words[2..-1] "$current" 2>/dev/null)
    if test (count $lines) -eq 1; and test $lines[1] = ":0"
        set -l prefix (string match -r -- '^--[^=]+=' "$current")
        for path in (__fish_complete_path (string replace -r -- '^--[^=]+=' '' "$current"))
            echo -- "$prefix$path"
        end
    else
        string match -v -r '^:\d+$' -- $lines
    end
end
complete -c tidegate -f -a '(__tidegate_complete)'
"""

_SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
