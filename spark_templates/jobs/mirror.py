"""Copies what the OffsetMirror named by the first argument asks for. Started by ``spark-submit``."""

import os
import sys

from tidegate.spark.entry import mirror

if __name__ == "__main__":
    sys.exit(mirror(sys.argv[1:], os.environ))
