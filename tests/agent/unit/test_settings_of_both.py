"""Both agents know the same variables: an operator injects them into pods whatever is in there."""

from __future__ import annotations

import re

import tidegate_agent.settings
from devstack.java_agent import SOURCE


def test_the_java_agent_knows_each_variable_of_the_python_agent() -> None:
    package = SOURCE / "runtime" / "src" / "main" / "java" / "io" / "tidegate" / "agent" / "runtime"
    java = set(re.findall(r'"(TIDEGATE_\w+)"', (package / "Settings.java").read_text(encoding="utf-8")))
    python = {value for value in vars(tidegate_agent.settings).values() if re.match(r"TIDEGATE_\w+$", str(value))}

    assert "TIDEGATE_CONTROL_TOPIC" in python
    assert python <= java
