"""Typed streams over the Kafka protocol: the same program runs on our broker and on a Kafka or Redpanda cluster.

Read `declare/stream.py` first (what a program writes), then `client.py` (what it opens), `publish.py`, and for reading
`group.py`, `member.py` (the one thread that talks to librdkafka) with `cursors.py` and `holding.py` beside it, then
`reader.py` and `subscription.py`. `border.py` has librdkafka's options and its errors as ours; its objects, `Message`
above all, never leave this package. `embedded.py` finds the broker of a directory, or starts one.
"""
