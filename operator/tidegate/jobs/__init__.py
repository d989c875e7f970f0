"""Starting Spark from outside: what a job is given, the runners, and whether it can be started at all."""
