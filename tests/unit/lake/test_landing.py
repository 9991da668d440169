"""Judge, files, commit, SQL together: what lands is what the model dumps."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from typing import Any

import pyarrow.parquet as pq
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from pydantic import BaseModel, Field, computed_field, field_serializer, field_validator

from headwater import config
from headwater.lake import sql
from headwater.lake.files import write_range
from headwater.sdk.declare import Stream, Table
from tests.unit.lake.models import DAY_MS, NOON_MS, STREAM_ID, Lake, Line, Order, Polled, place, records

COLUMNS = tuple(Order.model_fields)


def as_the_table_says(order: Order) -> dict[str, Any]:
    """`model_dump()`, as columns hold it: values of enums, UTC, JSON text."""
    said = order.model_dump()
    said["colour"] = order.colour.value
    for line in [*said["lines"], *([said["first"]] if said["first"] else [])]:
        line["colour"] = line["colour"].value
    placed = order.placed
    said["placed"] = placed.replace(tzinfo=UTC) if placed.tzinfo is None else placed.astimezone(UTC)
    dumped = order.model_dump(mode="json")
    return {**said, "data": dumped["data"], "more": dumped["more"]}


def as_read(line: dict[str, Any]) -> dict[str, Any]:
    """A line of the table, its JSON text parsed."""
    said = {name: line[name] for name in COLUMNS}
    said["data"] = json.loads(said["data"])
    said["more"] = said["more"] and json.loads(said["more"])
    return said


texts = st.text(st.characters(codec="utf-8"), max_size=8)
lines = st.builds(Line, sku=texts, count=st.integers(1, 2**63 - 1), price=st.none() | st.floats(allow_nan=False))
orders = st.builds(
    Order,
    id=texts,
    count=st.integers(-(2**63), 2**63 - 1),
    total=st.floats(allow_nan=False, allow_infinity=False),
    placed=st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1))  # noqa: DTZ001  naive means UTC
    | st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1), timezones=st.timezones()),  # noqa: DTZ001
    due=st.none() | st.dates(date(1, 1, 1), date(9999, 12, 31)),
    lines=st.lists(lines, max_size=3),
    first=st.none() | lines,
    more=st.none() | st.lists(lines, max_size=2),
    numbers=st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=3),
    data=st.dictionaries(texts, st.none() | st.integers() | texts | st.lists(st.booleans()), max_size=3),
    blob=st.binary(max_size=5).filter(lambda raw: raw.isascii()),  # JSON carries bytes as UTF-8
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batch=st.lists(orders, min_size=1, max_size=8))
def test_what_lands_is_what_the_model_dumps(batch, tmp_path_factory):
    """Each valid record is read back equal to `model_dump()`, by pyiceberg and by DuckDB."""
    lake = Lake(tmp_path_factory.mktemp("lake"), Stream[Order]("orders", destination=Table[Order]("orders")))
    raw = [one.model_dump_json().encode() for one in batch]
    lake.land([Polled(at, value) for at, value in enumerate(raw)])
    expected = [as_the_table_says(Order.model_validate_json(value)) for value in raw]
    assert [as_read(line) for line in lake.lines(lake.table)] == expected
    answer = sql(lake.catalog, "SELECT * FROM orders ORDER BY _offset")
    assert [as_read(dict(zip(answer.columns, row, strict=True))) for row in answer.rows] == expected
    assert lake.lines(lake.dead) == []


def test_fidelity_columns(lake):
    """Every line says which record it was: stream, id, epoch, partition, offset, time, key and headers."""
    sent = Polled(7, b'{"id": "a"}', 3, NOON_MS, b"k\xff", (("h", b"1"), ("h", None), ("\udcff", b"")))
    lake.land([sent, Polled(9, b'{"id": "b"}', 4)], place(2))
    first, second = lake.lines(lake.table)
    assert {name: value for name, value in first.items() if name.startswith("_")} == {
        "_stream": "orders",
        "_stream_id": STREAM_ID,
        "_epoch": 3,
        "_partition": 2,
        "_offset": 7,
        "_timestamp": datetime.fromtimestamp(NOON_MS / 1000, UTC),
        "_key": b"k\xff",
        "_headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}, {"key": "\\xff", "value": b""}],
    }
    assert (second["_epoch"], second["_key"], second["_headers"]) == (4, None, [])


def test_dead_letters_keep_bytes_and_facts(lake):
    """A record that does not validate lands as it was, with the facts, beside the table."""
    sent = Polled(5, b'{"id": "x", "n": -1}', 0, NOON_MS, b"key", (("h", b"v"),))
    lake.land([Polled(4, b'{"id": "fine"}'), sent, Polled(6, b"\xff not json"), Polled(7, None)])
    assert [line["id"] for line in lake.lines(lake.table)] == ["fine"]
    letter, no_json, tombstone = lake.lines(lake.dead)
    assert (letter["_value"], letter["_key"], letter["_headers"]) == (
        sent.value,
        b"key",
        [{"key": "h", "value": b"v"}],
    )
    facts = {name: letter[name] for name in ("stream", "partition", "offset", "timestamp", "reader", "attempts")}
    assert facts == {
        "stream": "orders",
        "partition": 0,
        "offset": 5,
        "timestamp": letter["_timestamp"],
        "reader": "headwater.orders",
        "attempts": 1,
    }
    assert letter["error_type"] == "ValidationError"
    assert "greater than or equal to 0" in letter["error_message"]
    assert no_json["_value"] == b"\xff not json"
    assert (tombstone["_value"], tombstone["error_type"]) == (None, "NoValue")


class Odd(BaseModel):
    """A model whose validators do what they please."""

    n: int
    text: str = ""
    inner: list[Line] = []
    at: datetime | None = None

    @field_validator("text")
    @classmethod
    def judge(cls, text: str) -> Any:
        if text == "raise":
            raise RuntimeError("no " * 5000)
        if text == "exit":
            raise SystemExit(3)
        return {"none": None, "bytes": b"raw", "surrogate": "\ud800"}.get(text, text)

    @field_validator("n", mode="wrap")
    @classmethod
    def loose(cls, n: Any, handler: Any) -> Any:
        return n if isinstance(n, float) else handler(n)


@pytest.mark.parametrize(
    ("value", "error", "said"),
    [
        ({"n": 2**63}, "OverflowError", "n: the column holds long"),
        ({"n": -(2**70)}, "OverflowError", "n: the column holds long"),
        ({"n": 1.5}, "NotOfColumn", "n: the column holds long"),
        ({"n": 1, "text": "raise"}, "RuntimeError", "no no no"),
        ({"n": 1, "text": "none"}, "NotOfColumn", "text is None"),
        ({"n": 1, "text": "bytes"}, "NotOfColumn", "text: the column holds string"),
        ({"n": 1, "text": "surrogate"}, "UnicodeEncodeError", "text: the column holds string"),
        ({"n": 1, "inner": [{"sku": "a", "count": 2**64}]}, "OverflowError", "inner: the column holds list"),
        ({"n": 1, "at": "0001-01-01T00:00:00+14:00"}, "OverflowError", "at: the column holds timestamptz"),
    ],
)
def test_what_no_column_holds_is_a_dead_letter(tmp_path, value, error, said):
    """A value that passes the model and no column becomes a dead letter that names it; its neighbours land."""
    lake = Lake(tmp_path, Stream[Odd]("odd", destination=Table[Odd]("odd")))
    raw = [b'{"n": 1}', json.dumps(value).encode(), b'{"n": 2}']
    lake.land([Polled(at, one) for at, one in enumerate(raw)])
    assert [line["n"] for line in lake.lines(lake.table)] == [1, 2]
    (letter,) = lake.lines(lake.dead)
    assert (letter["_offset"], letter["_value"], letter["error_type"]) == (1, raw[1], error)
    assert said in letter["error_message"]
    assert len(letter["error_message"]) <= config.LAND_ERROR_CHARS_MAX
    if error == "RuntimeError":
        assert "test_landing.py" in letter["error_stack"]


def test_an_exit_is_no_dead_letter(tmp_path):
    """What is not an Exception ends the task, and leaves no file behind."""
    lake = Lake(tmp_path, Stream[Odd]("odd", destination=Table[Odd]("odd")))
    with pytest.raises(SystemExit):
        lake.write([Polled(0, b'{"n": 1}'), Polled(1, b'{"n": 1, "text": "exit"}')])
    assert not list(tmp_path.rglob("*.parquet"))


class Dumps(BaseModel):
    """Serializers and computed fields: the table holds what the model dumps, not what it was given."""

    name: str = Field(alias="Name")
    secret: str = Field(default="", exclude=True)

    @field_serializer("name")
    def shout(self, name: str) -> str:
        return name.upper()

    @computed_field  # type: ignore[prop-decorator]
    @property
    def size(self) -> int:
        return len(self.name)


def test_serializers_and_aliases(tmp_path):
    """JSON is by alias, columns are by field name, values as serializers give them."""
    lake = Lake(tmp_path, Stream[Dumps]("dumps", destination=Table[Dumps]("dumps")))
    lake.land([Polled(0, b'{"Name": "abc"}')])
    (line,) = lake.lines(lake.table)
    assert (line["name"], line["size"]) == ("ABC", 3)
    assert "secret" not in line


def test_versions_land_in_one_table(tmp_path):
    """Records of both versions of a model land; what a version lacks is null, what differs is JSON text."""
    first = pydantic.create_model("V1", id=(str, ...), size=(int, ...))
    second = pydantic.create_model("V2", id=(str, ...), size=(list[int], ...), new=(float, ...))
    versions: Any = first | second
    lake = Lake(tmp_path, Stream[versions]("v", destination=Table[versions]("v")))
    lake.land([Polled(0, b'{"id": "a", "size": 1}'), Polled(1, b'{"id": "b", "size": [2], "new": 0.5}')])
    assert [(one["id"], one["size"], one["new"]) for one in lake.lines(lake.table)] == [
        ("a", "1", None),
        ("b", "[2]", 0.5),
    ]


def test_files_carry_field_ids_and_stand_apart(lake):
    """A file is sorted, carries Iceberg's field ids and statistics, and lies under its attempt's directory."""
    written = lake.write(records(3, 30, bad=[10]))
    good, dead = sorted(written, key=lambda one: one.table)
    assert (good.first_offset, good.last_offset, good.records_count) == (3, 29, 26)
    assert dead.records_count == 1
    path = good.path.removeprefix("file://")
    assert path.split("/")[-3] == "data"
    table = lake.catalog.load_table(lake.table.table)
    ids = {one.name: str(one.field_id).encode() for one in table.schema().fields}
    read = pq.read_schema(path)
    assert {name: read.field(name).metadata[b"PARQUET:field_id"] for name in ids} == ids
    assert pq.ParquetFile(path).read().column("_offset").to_pylist() == [at for at in range(3, 30) if at != 10]
    offset_id = table.schema().find_field("_offset").field_id
    assert int.from_bytes(good.statistics["lower_bounds"][offset_id], "little") == 3
    assert int.from_bytes(good.statistics["upper_bounds"][offset_id], "little") == 29


def test_a_file_per_day(lake, monkeypatch):
    """Files split by the day of the timestamp, whatever order the timestamps come in, with few of them open."""
    monkeypatch.setattr(config, "LAND_DAYS_OPEN_MAX", 2)
    stamps = [0, DAY_MS - 1, DAY_MS, -1, 5 * DAY_MS, 0, 2**62, -(2**62)]
    batch = [Polled(at, b'{"id": "%d"}' % at, timestamp_ms=ms) for at, ms in enumerate(stamps)]
    written = lake.land(batch)
    assert {0, 1, -1, 5} <= {one.day for one in written}
    assert len(lake.lines(lake.table)) == len(stamps)
    scan = lake.catalog.load_table(lake.table.table).scan("_timestamp < '1970-01-02T00:00:00+00:00'")
    assert sorted(scan.to_arrow().column("id").to_pylist()) == ["0", "1", "3", "5", "7"]


def test_a_backfill_of_many_days_makes_a_file_per_day(lake, monkeypatch):
    """Timestamps that jump between hundreds of days, chunk after chunk, leave a file per day, not per day and chunk."""
    monkeypatch.setattr(config, "LAND_DAYS_OPEN_MAX", 2)
    batch = [Polled(at, b'{"id": "%d"}' % at, timestamp_ms=at * 37 % 200 * DAY_MS) for at in range(1000)]
    chunks = [batch[at : at + 100] for at in range(0, 1000, 100)]
    written = write_range((lake.table, lake.dead), lake.judge, place(), chunks, {}, "attempt")
    assert len(written) == 200
    for file in written:
        offsets = pq.ParquetFile(file.path.removeprefix("file://")).read().column("_offset").to_pylist()
        assert offsets == [one.offset for one in batch if one.timestamp_ms // DAY_MS == file.day]
        assert (file.first_offset, file.last_offset) == (offsets[0], offsets[-1])


def test_memory_is_bounded(lake, monkeypatch):
    """A range of any size is written in row groups of a limited size."""
    monkeypatch.setattr(config, "LAND_GROUP_RECORDS", 100)
    batch = records(0, 1000)
    chunks = [batch[at : at + 50] for at in range(0, 1000, 50)]
    (written,) = write_range((lake.table, lake.dead), lake.judge, place(), chunks, {}, "attempt")
    footer = pq.ParquetFile(written.path.removeprefix("file://")).metadata
    assert footer.num_row_groups == 10
