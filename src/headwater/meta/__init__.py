"""What Headwater knows besides the records: streams, cursors, groups, producer ids. Only store opens it."""

from headwater.meta.database import Boot, GroupKind, Meta, Place, StreamEntry, name_taken

__all__ = ["Boot", "GroupKind", "Meta", "Place", "StreamEntry", "name_taken"]
