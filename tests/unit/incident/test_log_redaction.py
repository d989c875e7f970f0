"""What a support archive has of the operator's log: in both formats, and of what was quoted before, no credential."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable

import pytest

from tidegate.incident.redaction import log_redacted
from tidegate.service.logs import formatter

PLANTED = "hunter2-Tr0ub4dor"

CREDENTIALS = [
    f"kcat --sasl-password\t{PLANTED}",
    f"kcat --sasl-password 'correct {PLANTED}'",
    f"sasl.password\t=\t{PLANTED}",
    f"sasl.password\x0b=\u2003{PLANTED}",
    f"Bearer\t{PLANTED}",
    f"authorization:\n  Bearer\t{PLANTED}",
    f"its header:\nBearer {PLANTED}",
    f"its header:\neyJhbGciOi.{PLANTED}.sig",
    f"doc:\npassword:\n    {PLANTED}",
    f"doc:\r\n  password:\r\n{' ' * 40}{PLANTED}\r\n",
    f"doc:\npassword: |-\n  {PLANTED}",
    f'password="correct horse\n  {PLANTED}"',
    f"password=b'correct {PLANTED}'",
    f'HTTP response body: {{"message":"denied: spec: {{\\"sasl.password\\": \\"correct {PLANTED}\\"}}"}}',
    f'denied: {{\\"sasl.password\\": \\"a \\\\\\" quote and {PLANTED}\\"}}',
    f"-----BEGIN PRIVATE KEY-----\n{PLANTED}\n-----END PRIVATE KEY-----",
    f"https://me:{PLANTED}@storage/x",
]


def record(message: str, error: Exception | None = None) -> logging.LogRecord:
    made = logging.LogRecord("tidegate.x", logging.ERROR, "f", 1, "%s", (message,), None)
    if error is not None:
        try:
            raise error
        except Exception:  # noqa: BLE001 - the record is to have its traceback
            made.exc_info = sys.exc_info()
    return made


def quoted(times: int, message: str) -> str:
    """As an answer that holds an answer, and so on, has it."""
    for _ in range(times):
        message = json.dumps({"message": message, "code": 403})
    return f"refused: {message}"


def truncated(line: str) -> str:
    """No object any more."""
    return line[:-2]


def as_it_is(line: str) -> str:
    return line


@pytest.mark.parametrize("cut", [as_it_is, truncated])
@pytest.mark.parametrize("format_name", ["text", "json"])
@pytest.mark.parametrize("times", [0, 1, 2])
@pytest.mark.parametrize("credential", CREDENTIALS)
def test_a_message_has_no_credential(credential: str, times: int, format_name: str, cut: Callable[[str], str]) -> None:
    log = cut(formatter(format_name).format(record(quoted(times, f"before {credential} after")))) + "\n"

    told = log_redacted(log)

    assert PLANTED not in told
    assert "(redacted)" in told
    assert "before" in told


@pytest.mark.parametrize(
    "text",
    [
        f'password="correct {PLANTED}", user="bob"',
        f'{{\\"password\\": \\"correct {PLANTED}\\", \\"user\\": \\"bob\\"}}',
        f'{{\\"password\\": \\"a \\\\\\" quote and {PLANTED}\\", \\"user\\": \\"bob\\"}}',
        f'{{\\\\\\"password\\\\\\": \\\\\\"correct {PLANTED}\\\\\\", \\\\\\"user\\\\\\": \\\\\\"bob\\\\\\"}}',
        f'refused: {{"message": "denied: {{\\"password\\": \\"correct {PLANTED}", "user": "bob"}}',
    ],
)
def test_what_comes_after_a_value_stays(text: str) -> None:
    told = log_redacted(text)

    assert PLANTED not in told
    assert "(redacted)" in told
    assert "bob" in told


@pytest.mark.parametrize("format_name", ["text", "json"])
@pytest.mark.parametrize("credential", CREDENTIALS)
def test_a_traceback_has_no_credential(credential: str, format_name: str) -> None:
    told = log_redacted(formatter(format_name).format(record("failed", ValueError(f"before {credential}"))))

    assert PLANTED not in told
    assert "(redacted)" in told
    assert "Traceback" in told


def test_an_object_in_a_line_stays_one_and_what_is_no_credential_stays_as_it_is() -> None:
    calm = 'group payments: C:\\new\\table, \u2028 \ud800 and {"a": [1]}'
    lines = [formatter("json").format(record(message)) for message in (calm, f"password: {PLANTED}", calm)]

    told = log_redacted("\n".join([*lines, "killed", ""])).split("\n")

    assert (told[0], told[2], told[3:]) == (lines[0], lines[2], ["killed", ""])
    assert json.loads(told[1])["message"] == "password: (redacted)"


def test_a_value_that_has_no_end_takes_no_other_record_with_it() -> None:
    log = '2026-11-27 09:00:00,000 INFO    a: password="cut\n2026-11-27 09:00:01,000 INFO    a: group "g" is free\n'

    assert log_redacted(log) == log.replace('"cut', "(redacted)")


def test_a_key_between_objects_has_no_line_left() -> None:
    line = formatter("json").format(record("serving"))

    told = log_redacted(f"{line}\n-----BEGIN PRIVATE KEY-----\n{PLANTED}\n-----END PRIVATE KEY-----\n{line}\n")

    assert told == f"{line}\n(redacted)\n{line}\n"


@pytest.mark.parametrize(
    "line",
    [
        '{"a":' * 100_000,
        '{"a":' * 400 + "1" + "}" * 400,
        '{"a": ' + "9" * 100_000 + "}",
        '{"a": NaN}',
        "{",
        "[1]",
        '{"password": ["x"]}',
    ],
    ids=lambda line: line[:8],
)
def test_what_is_no_object_or_too_deep_is_a_text(line: str) -> None:
    told = log_redacted(f"{line}\npassword={PLANTED}")

    assert told.endswith("\npassword=(redacted)")
    assert '"x"' not in told


@pytest.mark.parametrize(
    "piece",
    [
        "\\",
        "\\n",
        "pwd",
        "pwd\\\\\\\\\\\\\\\\",
        "pwdpwdpwdpwdpwd" + "\\\\\\\\t" * 200,
        "pwdpwdpwdpwdpwd" + " " * 5000,
        "token:\\n",
        "token: |",
        "--password\\t",
        "--password\\t-",
        'password="\n',
        "password='\"\n\\\\\n",
        "password=\\\\\\",
        'password=\\\\\\"',
        "bearer\\t",
        "\\neyJ",
        "\\u2028",
        "{\n",
        '{"a":1}\n',
    ],
)
def test_a_hostile_log_takes_no_more_time_than_its_length(piece: str) -> None:
    """Each would take minutes, if its parts were looked at again for each of them."""
    log = piece * (500_000 // len(piece))

    assert PLANTED not in log_redacted(f"{log} password={PLANTED}")
