#!/usr/bin/env python3
"""The local stack from the command line: `dev/stack.py build|up|down|status|env|node`. Needs only Python 3.11."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - it runs before anything has checked the version
    print(f"too old: Python {sys.version.split()[0]}; Python 3.11 or newer is needed", file=sys.stderr)
    sys.exit(2)

from devstack.commands import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
