"""`headwater demo`: the main job end to end, with a broker and a Spark driver killed on the way, and a check at the end."""

from headwater.cli.demo.play import play

__all__ = ["play"]
