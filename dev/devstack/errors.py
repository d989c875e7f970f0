"""What the dev stack raises."""


class StackError(Exception):
    """A part of the stack could not be built, started or reached; the message names its log file where there is one."""


class MissingPrerequisiteError(StackError):
    """A tool of the machine is missing or too old; the message is one line and says what to install."""
