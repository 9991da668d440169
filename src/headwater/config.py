"""Every limit and default, with its unit and its reason.

`Settings` is what an operator may change: flags win over `HEADWATER_*`, those over `headwater.toml`, those over the
defaults here. What follows it are limits that nobody needs to change; they stand here so that they can be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from headwater.errors import InvalidSetting


def _setting(default: Any, unit: str, reason: str, *, env: str = "") -> Any:
    return field(default=default, metadata={"unit": unit, "reason": reason, "env": env})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What `headwater up` may be told."""

    data: str = _setting("./.headwater", "directory", "beside the program, as a database file would be")
    host: str = _setting("127.0.0.1", "address", "nobody but this machine, until security is built")
    port: int = _setting(9092, "port", "Kafka's own; 0 takes a free one")
    advertise: str = _setting("", "HOST:PORT", "what clients are told; empty: what was bound")
    insecure: bool = _setting(False, "switch", "said aloud to listen beyond loopback without authentication")
    auto_create: bool = _setting(False, "switch", "a typing error must not become a stream")
    num_partitions: int = _setting(4, "partitions", "of a stream that does not say: four readers can share it")
    flush_ms: int = _setting(
        50, "ms", "longest time an acked record of file_async waits for its flush", env="STREAM_DEFAULT_FLUSH_MS"
    )
    flush_records: int = _setting(5_000, "records", "or this many, whichever comes first")
    segment_bytes: int = _setting(
        64 * 1024**2, "bytes", "64 MiB, so that 1 GB per stream over four partitions can be held to"
    )
    index_interval_bytes: int = _setting(4096, "bytes", "Kafka's: log bytes between two index entries")
    record_bytes_max: int = _setting(1_048_588, "bytes", "Kafka's message.max.bytes: one batch with its header")
    frame_bytes_max: int = _setting(100 * 1024**2, "bytes", "Kafka's socket.request.max.bytes: one request")
    connections_max: int = _setting(10_000, "connections", "each costs a descriptor and some 40 KiB")
    buffered_bytes_max: int = _setting(
        512 * 1024**2,
        "bytes",
        "requests read and answers unsent, over all connections; a quarter more for requests up to 4 MiB",
    )
    send_buffer_bytes: int = _setting(
        102_400, "bytes", "Kafka's socket.send.buffer.bytes: larger ones were slower (measured)"
    )
    idle_ms: int = _setting(600_000, "ms", "Kafka's connections.max.idle.ms")
    session_timeout_min_ms: int = _setting(1_000, "ms", "group.min.session.timeout.ms; short enough for tests")
    session_timeout_max_ms: int = _setting(1_800_000, "ms", "Kafka's group.max.session.timeout.ms")
    rebalance_delay_ms: int = _setting(0, "ms", "group.initial.rebalance.delay.ms: nobody waits on one machine")
    group_members_max: int = _setting(10_000, "members", "group.max.size; bounds a coordinator's memory")
    cursor_metadata_bytes_max: int = _setting(4096, "bytes", "Kafka's offset.metadata.max.bytes")
    drain_seconds: float = _setting(30.0, "s", "SIGTERM to exit: finish what is in hand, flush, checkpoint")
    linger: float = _setting(5.0, "s", "an embedded broker without clients closes after this")
    embedded: bool = _setting(False, "switch", "started by a client: closes when the last one is gone")

    @classmethod
    def resolve(
        cls, flags: Mapping[str, Any], environ: Mapping[str, str], toml: Mapping[str, Any], *, strict: bool = True
    ) -> Self:
        """The settings in force. `flags` holds only what was said; unknown names in `toml` are an error."""
        known = {one.name: one for one in fields(cls)}
        for name in toml:
            if strict and name not in known and not isinstance(toml[name], Mapping):
                raise InvalidSetting(f"headwater.toml: there is no setting {name!r}: remove it or correct its name")
        chosen: dict[str, Any] = {}
        for name, one in known.items():
            for source, raw in (
                ("flag", flags.get(name)),
                (f"HEADWATER_{name.upper()}", environ.get(f"HEADWATER_{name.upper()}")),
                (one.metadata["env"], environ.get(one.metadata["env"]) if one.metadata["env"] else None),
                ("headwater.toml", toml.get(name)),
            ):
                if raw is not None:
                    chosen[name] = _parse(name, raw, type(one.default), source)
                    break
        return cls(**chosen)


def settings_file(file: Path = Path("headwater.toml")) -> dict[str, Any]:
    """What headwater.toml says; nothing when there is none."""
    import tomllib  # the broker without such a file need not wait for it

    try:
        return tomllib.loads(file.read_text()) if file.exists() else {}
    except (OSError, ValueError) as why:
        raise InvalidSetting(f"{file} cannot be read ({why}): correct it, or move it away") from None


def catalog_properties(toml: Mapping[str, Any]) -> dict[str, str]:
    """`[catalog]` of headwater.toml: pyiceberg's own keys, passed through."""
    said = toml.get("catalog", {})
    if not isinstance(said, Mapping):
        raise InvalidSetting(f"headwater.toml: [catalog] is a table of pyiceberg's properties, not {said!r}")
    return {str(name): str(value) for name, value in said.items()}


def _parse(name: str, raw: Any, kind: type, source: str) -> Any:
    try:
        if kind is bool and isinstance(raw, str):
            return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False, "": False}[
                raw.lower()
            ]
        value = kind(raw)
    except (KeyError, TypeError, ValueError):
        raise InvalidSetting(f"{source}: {name} wants a {kind.__name__}, not {raw!r}") from None
    if kind in {int, float} and value < 0:
        raise InvalidSetting(f"{source}: {name} cannot be negative, and is {raw!r}")
    return value


# --- limits that nobody needs to change ----------------------------------------------------------

FORMAT_VERSION = 1  # of the data directory; in FORMAT, in meta.db and in the header of each file that is ours alone
BATCHES_REMEMBERED = 5  # per producer and partition: what Kafka promises a client with five requests in flight
ARRAY_ITEMS_MAX = 100_000  # in one request; more than any client sends, and what answers it holds the loop 1 s at most
ANSWERED_AT_ONCE = 100  # items of one long request; then others are served before it goes on
PARTITIONS_MAX = 10_000  # per stream; Kafka has no limit, a typing error should meet one
TIMESTAMP_AHEAD_MAX_MS = 3_600_000  # Kafka's message.timestamp.after.max.ms: a wrong clock must not pin retention
INFLATED_BYTES_MAX = 128 * 1024**2  # what one compressed batch may become in a reader
GZIP_MEMBERS_MAX = 1_000  # in one batch; writers make one, and each costs a copy of what follows it
READ_CHUNK_BYTES = 256 * 1024  # recovery reads a log in pieces of this size
CHECKPOINT_BYTES = 8 * 1024**2  # of one partition's log between two checkpoints: what a start after a crash reads again
VERIFIED_PER_READ_BYTES = 1024**2  # a read checks no more old bytes than these: a cold reader must not stop the others
BUFFERS_PER_WRITE_MAX = 1024  # IOV_MAX of Linux and macOS: buffers in one writev
SEGMENTS_OPEN_MAX = 16  # sealed segments of one partition that are kept open: a descriptor and an index each
PRODUCERS_MAX = (
    10_000  # remembered per partition; beyond it those that wrote longest ago are forgotten, as Kafka does by age
)
POSITIONS_REMEMBERED = 64  # where the last reads ended, per partition: most reads begin there
SEGMENT_BYTES_MAX = 2**31 - 1  # positions in a segment are 31 bits wide, as Kafka's are
PRODUCER_IDS_PER_GRANT = 1000  # meta.db is written once per this many; a crash wastes the rest
META_REQUESTS_PER_COMMIT = 1000  # one transaction of meta.db; bounds how long the first of them waits for the last
META_RESERVE_BYTES = 1024**2  # kept free for deletes on a full disk; a delete writes a few 4 KiB pages, twice
LOCK_ATTEMPT_MS = 250  # a start tries the directory's lock for so long: clients that look who holds it have it briefly
LOCK_PAUSE_MS = 5  # between two attempts at a lock
CLUSTER_ID_PREFIX = "headwater-"  # how a client knows what it may ask (rule 11 of the public face)
NEW_MEMBER_JOIN_MS = 300_000  # Kafka's: a first join may wait this long, since its member has no session yet
STALL_MS = 1_000  # a coordinator that did not run for longer was stopped or starved: that time expires nobody
STALL_SAMPLE_MS = 500  # how often it looks at the clock while somebody's time runs, to notice
GROUPS_IN_MEMORY_MAX = 100_000  # beyond it empty groups are forgotten (never their cursors), then new names refused
GROUP_MEMBERS_TOTAL_MAX = 100_000  # over all groups, those that were only promised an id included
GROUP_BYTES_MAX = 256 * 1024**2  # subscriptions and assignments of all members together
GROUP_NAME_CHARS_MAX = 1_024  # Kafka has no limit but its length field; a name is a key in memory and on disk
RANGE_CHUNK_RECORDS = 10_000  # records that a bounded read asks librdkafka for at once
RANGE_CONSUME_SECONDS = 0.2  # and waits for, when fewer than that remain
RANGE_QUEUE_KBYTES = 65_536  # read ahead by one range; two per core are read at once
RANGE_STALL_SECONDS = 30.0  # a range that gives nothing for so long is an error: librdkafka alone would wait for ever
RANGE_ANSWER_SECONDS = 10.0  # for a question about streams or offsets
FRAME_BYTES_MIN = 10  # of a request: its key, version, correlation id and client id's length
RECEIVE_BYTES = 64 * 1024  # asked of the kernel at once; a request beyond it gets a buffer of its own
ARENA_BYTES = 1024**2  # what small requests of one turn are received into, together
PARTIAL_BYTES = 4096  # least buffer of a request that did not arrive whole
MAPPED_BYTES_MIN = 4 * 1024**2  # request buffers from here on are mapped: memory is touched as bytes arrive, not before
FRAME_GRACE_SECONDS = 30  # a request that has begun is given this long without any question
FRAME_BYTES_PER_SECOND_MIN = 10_000  # and must have come at this rate from then on, else its connection closes
CONTENDED_GRACE_SECONDS = 2  # while others wait for room, a request that was given some has to come within this
CONTENDED_BYTES_PER_SECOND_MIN = 1024**2  # or at this rate: else it is one that only announced itself
ANSWERS_WAITING_MAX = 1_000  # requests of one connection in hand; then it is read no further
GATHER_BYTES_MAX = 8 * 1024**2  # received in one turn of the loop; then what was gathered is written at once
GATHERED_BYTES = 256 * 1024  # of bytes and short ranges that are sent in one piece; so much of them lies in memory
SENDFILE_BYTES_MIN = 16 * 1024  # a shorter range is read and sent with its head: one call to the kernel less
ACCEPTS_PER_TURN = 64  # new connections taken before others are served again
ACCEPT_PAUSE_SECONDS = 0.5  # without descriptors left: connections wait in the kernel meanwhile
DESCRIPTORS_FOR_CLIENTS = 64  # log files do not take these, so that who is new can still be served
DESCRIPTORS_FOR_FLUSHES = (
    16  # nor clients these: a directory that cannot be opened cannot be flushed, which fails its log
)
LISTEN_BACKLOG = 1_024  # connections the kernel holds until they are taken
SWEEP_SECONDS = 1.0  # how often connections are looked over for those that idle or dawdle
OPEN_THREADS = 4  # partitions that may be recovered at the same time, beside the loop
FETCH_BYTES_MAX = 57_671_680  # Kafka's fetch.max.bytes: of one answer, whatever its client says
FETCH_WAIT_MS_MAX = 60_000  # of a long poll, whatever its client says: so that a vanished client is noticed
CLIENTS_PROBE_SECONDS = 0.5  # how often an embedded broker looks whether a client is left
CATALOG_BUSY_SECONDS = 30  # how long a commit waits for another process's commit to the same SQLite catalog
COMMIT_TRIES_MAX = 50  # of one table commit that others keep overtaking; each try writes two small files
LAND_GROUP_RECORDS = 131_072  # records of one Parquet row group: what a task holds in memory before it writes
LAND_GROUP_BYTES = 64 * 1024**2  # or this many bytes of Arrow memory, whichever comes first
LAND_DAYS_OPEN_MAX = 32  # files a task holds open for one table, one per day; publishers choose timestamps freely
LAND_ERROR_CHARS_MAX = 4_096  # of a dead letter's error message, and of its stack
SNAPSHOTS_KEPT = 20  # of a table that lands: enough for readers under way and to look back; a commit reads them all
SNAPSHOTS_MAX = 60  # when there are so many, a commit expires those beyond SNAPSHOTS_KEPT
METADATA_KEPT_SECONDS = 3_600  # manifests that no snapshot names stay so long: a commit or a reader may hold them
SQL_FETCH_RECORDS = 10_000  # rows that `headwater sql` takes from DuckDB at a time
JAVA_VERSION_MIN = 17  # Spark 4.3's
JAVA_ANSWER_SECONDS = 30.0  # for `java -version`; 0.1 s on an idle machine
SPARK_HEAP = "1g"  # of the driver's JVM, which plans and carries one row per file; records stay in the workers
SPARK_TASK_ATTEMPTS = 4  # Spark's own spark.task.maxFailures, which plain local[N] turns off
LAND_RANGE_RECORDS_MAX = 200_000  # of one partition in one batch: bounds a task's time, and what a kill repeats
LAND_TASKS_PER_CORE = 2  # per batch: 50 streams of 4 partitions would else be 200 tasks a second
LAND_DUE_RECORDS = 10_000  # a stream with so many new records lands in the next batch
LAND_DUE_SECONDS = 1.0  # and one with fewer when the first of them has waited so long
LAND_TRIGGER_SECONDS = 0.5  # how often a running landing asks for new records
LAND_AWAY_SECONDS = 60.0  # a server that is away for longer ends `run`; `run` goes on where it was at its next start
LAND_PLANS_MAX = 5  # a landing that is planned anew so often without landing anything gives up
SDK_CONNECT_SECONDS = 10.0  # until a server answers `connect`; a starting one is there in 0.3 s, a far one in 1 s
SDK_ANSWER_SECONDS = 30.0  # for create, describe, delete and commits; librdkafka tries again within it
SDK_PUBLISH_SECONDS = 120.0  # until an unacknowledged record fails, as Kafka's Java client: outlasts any restart
SDK_LINGER_MS = 0  # a lone record is acked in 0.2 ms, with 1 ms in 1.5 (measured); many fill batches all the same
SDK_QUEUED_RECORDS = 100_000  # published and not acknowledged, per client; then `publish` waits
SDK_QUEUED_KBYTES = 262_144  # the same in bytes: 256 MiB
SDK_RECORD_BYTES_MAX = 100 * 1024**2  # librdkafka's own limit is lifted to the frame's: the stream's limit decides
SDK_RECONNECT_MS = 50  # a broker that was killed is back in 0.3 s; librdkafka doubles this up to five times it
SDK_HEARTBEAT_MS = 300  # how soon a member hears of a rebalance
SDK_SESSION_MS = 10_000  # a killed member's partitions go to others after this; above Kafka's minimum of 6 s
SDK_FETCH_BACKOFF_MS = 10  # librdkafka's default of 1000 costs four fifths of the reading speed (measured)
SDK_READ_AHEAD_RECORDS = 2_000  # per member, beyond librdkafka's own queue; then its partitions are paused
SDK_READ_AHEAD_BYTES = 16 * 1024**2  # or this many bytes of values
SDK_TURN_RECORDS = 50  # given in a row to a program that never waits, until the loop's other tasks have a turn
SDK_POLL_SECONDS = 0.1  # longest a member's thread waits for records before it looks at what it was asked
SDK_COMMIT_SECONDS = 5.0  # automatic commit, Kafka's auto.commit.interval.ms
SDK_PARTITIONS_AGE_SECONDS = 300.0  # how long a publisher trusts the number of partitions it was told
SDK_GONE_MS = 1_000  # a publisher believes that its stream is gone after this; librdkafka's 30 s suit slow clusters
SDK_IDENTITY_SECONDS = 2.0  # how often a reader on a server that is not ours makes sure that its stream is the same
SDK_GONE_SECONDS = 0.5  # how often a reader looks whether its deleted stream is back
EMBEDDED_START_SECONDS = 20.0  # until a broker we started answers, recovery of a killed one included
EMBEDDED_LOOK_SECONDS = 0.5  # how often a client looks whether the embedded broker is still there
LAND_PROBES_AT_ONCE = 8  # each waits 15 to 30 ms for the server: 200 partitions in half a second
LAND_LOOK_SECONDS = 0.1  # how often a run looks whether its query has ended, or it was told to
MEMBER_ID_NAME_CHARS_MAX = 255  # of a client's id in the member id it is given: promised ids are kept, too
GROUP_STREAM_COST_BYTES = 100  # what one subscription to one stream counts for in GROUP_BYTES_MAX, besides its bytes
LAND_PLAN_SECONDS = 30.0  # a plan that lived longer is no sign of going round in circles
LAND_ASK_SECONDS = 2.0  # between two questions to a server that is away
