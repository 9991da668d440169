"""The same odd requests as to Apache Kafka 4.3.1, and its answers: `kafka_said.json` is what it said.

Where ours differ, `differences.py` says why; a line there that is not needed any more fails. `TARGET=kafka` asks Kafka
itself, and `python -m tests.interop.test_differential` writes the file anew from a Kafka that it starts.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from headwater import testing
from tests.interop import group_talks, stream_talks
from tests.interop.differences import DIFFERENCES
from tests.interop.talk import Talk
from tests.sdk.live import TARGET, Started, start

SAID = Path(__file__).with_name("kafka_said.json")
TALKS: dict[str, Callable[[Talk], None]] = {one.__name__: one for one in stream_talks.TALKS + group_talks.TALKS}


def a_kafka(data: Path) -> Started:
    """With its groups and its producer ids ready, which it makes when it is first asked for them."""
    started = start("kafka", data, "--config", "auto.create.topics.enable=false")
    talk = Talk(started.address)
    deadline = time.monotonic() + 60
    while talk.aside("find_coordinator", 4, coordinator_keys=["g"]).coordinators[0].error_code:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    while talk.aside("init_producer_id", 4, transactional_id=None).error_code:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return started


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if TARGET == "kafka":
        started = a_kafka(tmp_path_factory.mktemp("kafka") / "data")
        yield started.address
        started.end()
    else:
        with testing.broker() as server:
            yield server.address


def said_by(address: str, name: str) -> dict[str, Any]:
    talk = Talk(address)
    try:
        TALKS[name](talk)
    finally:
        talk.close()
    plain: dict[str, Any] = json.loads(json.dumps(talk.said))
    return plain


def differences(ours: Any, theirs: Any, at: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        for key in ours:
            yield from differences(ours[key], theirs[key], f"{at}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(one, other, f"{at}[{number}]")
    elif ours != theirs:
        yield at, ours, theirs


@pytest.mark.parametrize("name", TALKS)
def test_odd_requests_are_answered_as_kafka_answers_them(asked, name):
    """Or the difference is known, and has its reason."""
    theirs, ours = json.loads(SAID.read_text())[name], said_by(asked, name)
    assert ours.keys() == theirs.keys()
    known = [one for one in DIFFERENCES if one[0] == name] if TARGET != "kafka" else []
    needed, unknown = set(), []
    for label in ours:
        for at, mine, other in differences(ours[label], theirs[label]):
            found = [one for one in known if fnmatchcase(label, one[1]) and fnmatchcase(at, f"*{one[2]}")]
            needed.update(found)
            if not found:
                unknown.append(f"{label}: {at}: {mine!r}, Kafka {other!r}")
    assert not unknown, "\n".join(unknown)
    assert not [one for one in known if one not in needed], "not different any more"


def record() -> None:
    with tempfile.TemporaryDirectory() as directory:
        started = a_kafka(Path(directory) / "data")
        try:
            said = {name: said_by(started.address, name) for name in TALKS}
        finally:
            started.end()
    lines = ",\n".join(
        f'"{name}": {{\n' + ",\n".join(f"{json.dumps(label)}: {json.dumps(one)}" for label, one in talk.items()) + "}"
        for name, talk in said.items()
    )
    SAID.write_text("{" + lines + "}\n")


if __name__ == "__main__":
    record()
