"""PySpark imports each top-level module named pyspark_* by itself: how `format("headwater")` is found anywhere."""
