"""Where our answers differ from Kafka's, and why: (talk, label, the field's end, reason). `*` stands for anything."""

_START = "the start offset is told with what was written, not with a refusal"
_NEGATIVE = "Kafka fails with UNKNOWN_SERVER_ERROR, after which some clients write twice; we take it for 0"
_WHOLE = "whole batches, where Kafka cuts the last one off: a reader drops that anyway"
_DIVERGED = "the offsets are told beside the diverging epoch as well"
_NOT_MADE = "what is only looked at gets no id"
_UNSAID = "every negative epoch says nothing; in Kafka -1 alone, and only here"

DIFFERENCES: list[tuple[str, str, str, str]] = [
    ("produce", "cut short", "error_code", "CORRUPT_MESSAGE: what is missing may have been lost on the way"),
    ("produce", "a header cut short", "error_code", "as above"),
    ("produce", "from the future", "log_start_offset", _START),
    ("produce", "from the future", "record_errors", "a batch is judged by its header: no record of it is named"),
    ("idempotent", "*", "log_start_offset", _START),
    ("idempotent", "*", "log_append_time_ms", "streams keep the times of their writers, so it is -1, also of a repeat"),
    ("idempotent", "a negative epoch", "error_code", "an id without its epoch is no producer: it is refused"),
    ("idempotent", "a negative epoch", "base_offset", "as above"),
    *[("fetch", f"{field} -1", "*", _NEGATIVE) for field in ("max_bytes", "partition_max_bytes")],
    *[("fetch", f"{field}max_bytes {size}", "records", _WHOLE) for field in ("", "partition_") for size in (200, 400)],
    ("fetch", "no such *", "aborted_transactions", "null where nothing was asked for, with an error too"),
    ("fetch", "by an unknown id v*", "aborted_transactions", "as above"),
    ("fetch", "isolation level 7", "*", "Kafka fails with UNKNOWN_SERVER_ERROR; without transactions there is one level"),
    *[("fetch", f"last epoch {epoch}", field, _DIVERGED) for epoch in (1, 99)
      for field in ("high_watermark", "last_stable_offset", "log_start_offset")],
    ("fetch_sessions", "an unknown session, from 0", "session_id", "sessions are not kept, which 0 says"),
    ("list_offsets", "leader epoch -2*", "*", _UNSAID),
    ("list_offsets", "twice", "partitions", "each question is answered"),
    ("leader_epochs", "-2 v*", "leader_epoch", "no epoch is negative, so none is known"),
    ("leader_epochs", "-2 v*", "end_offset", "as above"),
    ("metadata", "by no id v*", "*", "UNKNOWN_TOPIC_ID for the topic, where Kafka fails with UNKNOWN_SERVER_ERROR"),
    ("metadata", "some by id v*", "topics", "by id and by name in one request: each is answered"),
    ("create_topics", "*", "topic_id", _NOT_MADE),
    ("delete_topics", "by name and by id", "responses", "the one deletes the stream, the other does not find it"),
    ("describe_configs", "twice", "results", "answered once: an answer is a hundred times as long as its question"),
    ("cursors", "a generation in an unknown group", "error_code",
     "UNKNOWN_MEMBER_ID, at which a member joins again: groups are not kept over a restart"),
]  # fmt: skip
