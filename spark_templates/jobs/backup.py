"""Makes the backup that the order named by the first argument asks for. Started by ``spark-submit``."""

import os
import sys

from tidegate.spark.entry import backup

if __name__ == "__main__":
    sys.exit(backup(sys.argv[1:], os.environ))
