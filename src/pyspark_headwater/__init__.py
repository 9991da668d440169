"""PySpark imports each top-level module named pyspark_* by itself: how a format of ours is found in any session.

Keep it light, and free of errors: one such module that fails to import makes Spark find none of them.
"""

from headwater.pipeline.source import RangeSource as DefaultSource

__all__ = ["DefaultSource"]
