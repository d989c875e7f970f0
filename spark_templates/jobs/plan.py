"""Plans a reset of many groups in one job and writes the plans. Changes nothing. See ``--help``."""

import sys

from tidegate.spark.entry import plan

if __name__ == "__main__":
    sys.exit(plan(sys.argv[1:]))
