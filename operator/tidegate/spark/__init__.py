"""Spark: the application a run is carried out in, the runners that start it, and the job itself."""
