"""What a handler or a codec cannot do ends the connection that asked for it, and nothing else."""

from types import SimpleNamespace

import pytest

from bench.raw_client import Raw, codec
from headwater import testing
from headwater.broker.apis import APIS
from tests.unit.broker.conftest import create, eventually, fetch_fields, publish

DESCRIBE_CLUSTER, FETCH, PRODUCE = 60, 1, 0


def broken(*_: object) -> None:
    raise LookupError("this cannot be done")


async def broken_later(*_: object) -> None:
    broken()


def ask(address: str, name: str, version: int, **fields: object) -> None:
    with Raw(address, timeout=5) as raw, pytest.raises(ConnectionError):
        raw.ask(name, version, **fields)


@pytest.mark.parametrize("part", ["decode", "encode", "handle"])
def test_a_bug_in_one_api_leaves_the_others_served(monkeypatch, part):
    """A task that fails would end the group of all tasks, and with it the broker."""
    api = APIS[DESCRIBE_CLUSTER]
    whole = api.decode, api.encode, SimpleNamespace(handle=api.handle)
    with testing.broker() as server, Raw(server.address) as raw:
        handler = SimpleNamespace(handle=broken_later) if part == "handle" else whole[2]
        decode, encode = (
            broken if part == name else one for name, one in zip(("decode", "encode"), whole, strict=False)
        )
        monkeypatch.setattr(api, "_loaded", (decode, encode, handler))
        for _ in range(3):
            ask(server.address, "describe_cluster", 2)
        assert raw.ask("metadata", 12, topics=[]).cluster_id
        monkeypatch.setattr(api, "_loaded", whole)
        assert raw.ask("describe_cluster", 2).error_code == 0


def test_a_bug_in_the_answer_to_a_fetch_ends_its_connection(monkeypatch):
    """Also when it is given later, by what the fetch waited for."""
    api = APIS[FETCH]
    whole = api.decode, api.encode, SimpleNamespace(begin=api.begin)
    with testing.broker() as server, Raw(server.address) as raw:
        create(raw, "a")
        publish(raw, "a", b"x")
        monkeypatch.setattr(api, "_loaded", (whole[0], broken, whole[2]))
        ask(server.address, "fetch", 12, **fetch_fields("a"))
        with Raw(server.address, timeout=5) as waits:
            waits.send("fetch", 12, **fetch_fields("a", 1, max_wait_ms=60_000))
            eventually(lambda: server.statistics()["waiting_polls"], "it waits")
            publish(raw, "a", b"y")
            with pytest.raises(ConnectionError):
                waits.receive("fetch", 12)
        assert publish(raw, "a", b"z") == 2


@pytest.mark.parametrize("version", [10, 11])
def test_metadata_by_id_before_it_could_be_asked_is_refused_by_topic(raw, version):
    """The field for ids is older than the way to ask by them."""
    topic = codec("metadata").MetadataRequestTopic(name=None, topic_id=b"\1" * 16)
    (found,) = raw.ask("metadata", version, topics=[topic]).topics
    assert (found.error_code, found.name, bytes(found.topic_id)) == (42, "", b"\1" * 16)
