"""The training job of ``tidegate.jobs.archive``: what a plan does with Spark, without a cluster."""

import sys

from tidegate.spark.entry import warm_up

if __name__ == "__main__":
    sys.exit(warm_up(sys.argv[1]))
