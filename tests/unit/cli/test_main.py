"""What ``tidegate`` says where it is called by no command that it has."""

from __future__ import annotations

import pytest

from tidegate.cli.main import BAD_USAGE, main


@pytest.mark.parametrize(
    ("given", "named"),
    [(["backup"], "backup"), (["backup", "lst"], "backup lst"), (["mirror", "over", "x"], "mirror over")],
)
def test_one_of_several_commands_is_not_looked_for_among_all(
    given: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(given) == BAD_USAGE

    said = capsys.readouterr().err.splitlines()
    assert said[0].endswith(f"there is no command {named}")
    assert {line.split("tidegate ", 1)[1].split()[0] for line in said[1:]} == {given[0]}


def test_what_is_no_command_is_named_with_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["iu\x1b[31m", "--port", "1"]) == BAD_USAGE

    said = capsys.readouterr().err
    assert "there is no command iu\\x1b[31m\n" in said
    assert "tidegate ui OPTIONS" in said


def test_the_help_of_several_commands_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backup", "--help"]) == 0

    said = capsys.readouterr().out
    assert "tidegate backup restore" in said
    assert "tidegate mirror" not in said
