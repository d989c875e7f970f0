"""Carries out the run whose store is named by the first argument or by TIDEGATE_STORE. Started by ``spark-submit``."""

import os
import sys

from tidegate.spark.entry import reset

if __name__ == "__main__":
    sys.exit(reset(sys.argv[1:], os.environ))
