"""What a stream's configuration means for the log of one of its partitions."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.config import Settings

_DEFAULTS = Settings()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """`sync` is `file_sync`: readers see, and acks speak of, what is durable."""

    sync: bool = False
    segment_bytes: int = _DEFAULTS.segment_bytes
    index_interval_bytes: int = _DEFAULTS.index_interval_bytes
    flush_ms: int = _DEFAULTS.flush_ms
    flush_records: int = _DEFAULTS.flush_records
