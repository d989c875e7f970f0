"""What runs inside Spark, in the driver and the executors. The only code that imports pyspark."""
