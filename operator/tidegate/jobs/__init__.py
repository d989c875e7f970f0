"""Starting Spark from outside: what a job is told, what is mounted for it, and the runners that start and stop it."""
