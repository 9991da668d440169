from __future__ import annotations

import pickle
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pydantic import BaseModel
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from headwater.errors import LandingRefused, ModelNotSupported, OperatorError, TableNotFound
from headwater.lake import ensure_targets, open_catalog
from headwater.lake.catalog import load_table
from headwater.lake.tables import dead_letters_name
from headwater.sdk.declare import Stream, Table
from tests.unit.lake.models import Lake, Order, Small, place, records, small


class Wider(BaseModel):
    id: str
    n: int = 0
    extra: str | None = None


def test_tables_are_made_as_the_page_says(lake):
    """A table has the model's and the fidelity columns, days, an order, an identifier, and no blind retry."""
    table = lake.catalog.load_table("headwater.orders")
    assert [one.name for one in table.schema().fields] == [
        "id", "n", "_stream", "_stream_id", "_epoch", "_partition", "_offset", "_timestamp", "_key", "_headers",
    ]  # fmt: skip
    assert [str(one.transform) for one in table.spec().fields] == ["day"]
    assert table.schema().identifier_field_names() == {"id"}
    order = [table.schema().find_column_name(one.source_id) for one in table.sort_order().fields]
    assert order == ["_partition", "_offset"]
    assert table.properties["commit.retry.num-retries"] == "0"
    dead = [one.name for one in lake.catalog.load_table("headwater.orders_dead_letters").schema().fields]
    assert dead[:4] == ["stream", "partition", "offset", "timestamp"]
    assert dead[-1] == "_value"


def test_a_table_that_fits_is_adopted(lake):
    """A second start finds the tables; one that has more optional columns fits too, and they stay null."""
    with lake.catalog.load_table("headwater.orders").update_schema() as change:
        change.add_column("later", StringType())
        change.rename_column("n", "count")
        change.make_column_optional("n")
    with lake.catalog.load_table("headwater.orders").update_schema() as change:
        change.add_column("n", LongType())
    again = Lake(lake.directory, small())
    again.land(records(0, 2))
    assert [(one["n"], one["count"], one["later"]) for one in again.lines(again.table)] == [
        (0, None, None),
        (1, None, None),
    ]


def test_a_table_that_does_not_fit_is_named(tmp_path):
    """Each difference between the model and a table that is there is said, and nothing is changed."""
    catalog = open_catalog({}, tmp_path)
    ensure_targets(catalog, small())
    with pytest.raises(LandingRefused, match=r"has no column extra \(string\).*update_schema"):
        ensure_targets(catalog, Stream[Wider]("orders", destination=Table[Wider]("orders")))
    catalog.create_table("headwater.foreign", Schema(NestedField(1, "id", LongType(), required=True)))
    with pytest.raises(LandingRefused, match=r"column id is long, the model wants string; it has no column n"):
        ensure_targets(catalog, small(table="foreign"))


def test_what_must_be_there_is_not_taken_from_a_model_that_may_lack_it(tmp_path):
    """A required column of a table that is there refuses a model that may leave it empty."""
    catalog = open_catalog({}, tmp_path)
    ensure_targets(catalog, small())

    class Loose(BaseModel):
        id: str
        n: int | None

    with pytest.raises(LandingRefused, match="column n is required, and the model's may be None"):
        ensure_targets(catalog, Stream[Loose]("orders", destination=Table[Loose]("orders")))


def test_streams_that_cannot_land_are_refused():
    """Without a destination, without a model, or with two different ones there is nothing to land."""
    for stream, says in (
        (Stream[Small]("s"), "no destination"),
        (Stream("s", destination=Table("t")), "no model"),
        (Stream[bytes]("s", destination=Table[Small]("t")), "bytes has no columns"),
        (Stream[Small]("s", destination=Table[Order]("t")), r"both must name the same: Table\[Small\]"),
    ):
        with pytest.raises((ModelNotSupported, LandingRefused), match=says):
            ensure_targets(None, stream)


def test_dead_letters_of_two_streams_do_not_meet(tmp_path):
    """Two streams whose names become the same table name are told so at start."""
    assert dead_letters_name("a.b-c") == "a_b_c_dead_letters"
    catalog = open_catalog({}, tmp_path)
    ensure_targets(catalog, small("a.b", "one"))
    with pytest.raises(LandingRefused, match=r"dead letters of stream a\.b, and a-b would use the same table"):
        ensure_targets(catalog, small("a-b", "two"))


def test_targets_travel(lake):
    """A target and a judge pickle, are small, and write the same files on the other side."""
    table, dead, judge = pickle.loads(pickle.dumps((lake.table, lake.dead, lake.judge)))
    assert len(pickle.dumps(table)) < 10_000
    lake.table, lake.dead, lake.judge = table, dead, judge
    lake.land(records(0, 3))
    assert len(lake.lines(lake.table)) == 3
    assert table.arrow_schema.field("id").metadata[b"PARQUET:field_id"]


def test_a_missing_table_lists_those_there_are(lake):
    """A name that is not there is answered with the names that are."""
    with pytest.raises(TableNotFound, match=r"no table headwater\.nope; there are: headwater\.orders, headwater"):
        load_table(lake.catalog, "headwater.nope")


def test_two_start_at_once(tmp_path):
    """Catalog, namespace and tables come into being once, however many start at the same moment."""
    failures = []

    def start():
        try:
            Lake(tmp_path, small())
        except Exception as error:  # noqa: BLE001  each failure counts
            failures.append(error)

    threads = [threading.Thread(target=start) for _ in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert failures == []
    assert len(open_catalog({}, tmp_path).list_tables("headwater")) == 2


def test_a_busy_catalog_is_waited_for(lake):
    """Another process that holds the catalog's database makes a commit wait, not fail."""
    held = sqlite3.connect(lake.directory / "lake" / "catalog.db", check_same_thread=False, isolation_level=None)
    held.execute("BEGIN EXCLUSIVE")
    letting_go = threading.Timer(0.5, lambda: held.execute("ROLLBACK"))
    letting_go.start()
    lake.land(records(0, 3))
    letting_go.join()
    held.close()
    assert lake.token(lake.table).end == 3


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"type": "sqll"}, r"\[catalog\] of headwater.toml: 'sqll' is not .*: it takes pyiceberg's own keys"),
        ({"uri": "nonsense"}, r"\[catalog\] of headwater.toml: Could not infer .*: it takes pyiceberg's own keys"),
        (
            {"uri": "sqlite:////proc/none/x.db", "warehouse": "x"},
            "opening the catalog: .*unable to open database file: ",
        ),
        ({"type": "rest", "uri": "http://127.0.0.1:1"}, "opening the catalog: .*Connection refused.*: mend that"),
        ({}, "making .*/lake: .*Not a directory.*: mend that, or let .catalog. of headwater.toml name another place"),
    ],
)
def test_a_catalog_that_cannot_be_opened_says_why(tmp_path, properties, said):
    """A wrong key, a server that is away, a disk that refuses: one line each, and not the trace of a library."""
    (tmp_path / "lake").touch()
    with pytest.raises(OperatorError, match=said) as failed:
        open_catalog(properties, tmp_path)
    assert "\n" not in str(failed.value)


def test_catalog_properties_pass_through(tmp_path):
    """`[catalog]` of headwater.toml takes pyiceberg's own keys: another database, another warehouse."""
    (tmp_path / "elsewhere").mkdir()
    catalog = open_catalog(
        {"type": "sql", "uri": f"sqlite:///{tmp_path}/mine.db", "warehouse": f"file://{tmp_path}/elsewhere"}, tmp_path
    )
    ensure_targets(catalog, small())
    assert (tmp_path / "mine.db").exists()
    assert list((tmp_path / "elsewhere").rglob("*.metadata.json"))
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize("missing", ["pyiceberg", "pyarrow"])
def test_a_missing_extra_is_named(missing):
    """Without the extra, the import of the room is one error that names the command."""
    code = f"import sys; sys.modules[{missing!r}] = None\nimport headwater.lake"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    said = f"headwater.errors.NotInstalled: tables need {missing}"
    assert done.stderr.splitlines()[-1].startswith(said)
    assert "pip install 'headwater[spark]'" in done.stderr


def test_readers_make_nothing(tmp_path):
    """Who only reads is told that nothing has landed, and leaves no empty catalog behind."""
    with pytest.raises(TableNotFound, match="nothing has landed under"):
        open_catalog({}, tmp_path / "none", create=False)
    assert not (tmp_path / "none").exists()
    Lake(tmp_path, small())
    assert open_catalog({}, tmp_path, create=False).list_tables("headwater")


@pytest.mark.parametrize("name", ["with space", "hash#1", "per%20cent", "größe"])
def test_any_directory_will_do(tmp_path, name):
    """A directory with a name that is no URI holds tables like any other."""
    lake = Lake(Path(tmp_path / name), small())
    lake.land(records(0, 3), place())
    lake.land(records(3, 5), place())
    assert len(lake.lines(lake.table)) == 5
    assert (tmp_path / name / "lake" / "catalog.db").exists()
