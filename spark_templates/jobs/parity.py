"""Compares topics of two clusters offset by offset and prints JSON. Changes nothing. See ``--help``."""

import sys

from tidegate.spark.entry import parity

if __name__ == "__main__":
    sys.exit(parity(sys.argv[1:]))
