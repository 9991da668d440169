from __future__ import annotations

import asyncio
import socket

import pytest

import headwater
from headwater import Stream
from headwater.errors import ConnectionFailed, InvalidOption, InvalidSetting, NotConnected


async def test_a_stream_without_a_client_says_so(name):
    """A declared stream does nothing until a client is open."""
    with pytest.raises(NotConnected, match=r"no client is open.*headwater.connect"):
        await Stream(name).create()


async def test_the_open_client_is_used_and_two_are_a_choice(address, name):
    """With one client open streams use it; with two, an unbound stream is an error, a bound one is not."""
    stream = Stream[str](name, partitions=1)
    async with headwater.connect(address) as one:
        await stream.create()
        async with headwater.connect(address) as two:
            with pytest.raises(NotConnected, match=r"2 clients are open.*hw.stream"):
                await stream.exists()
            assert await two.stream(stream).exists()
            assert await one.stream(stream).exists()
        assert await stream.exists()
    with pytest.raises(NotConnected):
        await stream.exists()
    with pytest.raises(NotConnected, match="not open"):
        await one.streams()


async def test_tasks_of_other_contexts_see_the_client(hw, name):
    """The open client is the process's, not a contextvar's: a task begun elsewhere uses it too."""
    import contextvars

    stream = Stream[str](name)
    made = asyncio.get_running_loop().create_task(stream.create(), context=contextvars.Context())
    assert await made is stream


async def test_another_loop_is_refused(hw, name):
    """A client belongs to its event loop; another one is told so instead of hanging."""
    with pytest.raises(NotConnected, match="another event loop"):
        await asyncio.to_thread(lambda: asyncio.run(Stream(name).exists()))


async def test_nobody_at_the_address(monkeypatch):
    """An address where nobody answers is an error within the limit, which says what to do."""
    monkeypatch.setattr("headwater.sdk.client.SDK_CONNECT_SECONDS", 0.5)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(ConnectionFailed, match=rf"nobody answers at 127.0.0.1:{port}.*headwater up"):
        async with headwater.connect(f"127.0.0.1:{port}"):
            pass


async def test_the_environment_names_the_server(address, name, monkeypatch):
    """HEADWATER_URL is used when the program gives no address."""
    monkeypatch.setenv("HEADWATER_URL", address)
    async with headwater.connect() as hw:
        assert hw.address == address
        assert not await hw.exists(name)


async def test_kafka_options_pass_through_and_promises_stay(address):
    """Options of the Kafka client are passed on; those that the SDK's promises rest on are refused by name."""
    with pytest.raises(InvalidOption, match=r"kafka=\{'auto.offset.reset': ...\}"):
        headwater.connect(address, kafka={"auto.offset.reset": "latest"})
    async with headwater.connect(address, kafka={"client.id": "mine"}) as hw:
        assert isinstance(await hw.streams(), list)
    with pytest.raises(InvalidOption, match=r"no.such.option"):
        async with headwater.connect(address, kafka={"no.such.option": 1}):
            pass


async def test_a_client_is_opened_once(address):
    """A client that was closed is not opened again."""
    client = headwater.connect(address)
    async with client:
        pass
    with pytest.raises(NotConnected, match="make a new one"):
        async with client:
            pass


@pytest.mark.parametrize(
    "kafka",
    [{"security.protocol": "nope"}, {"security.protocol": "SSL", "ssl.ca.location": "/nowhere"}, {"error_cb": 5},
     {"client.id": "\ud800"}, {"client.id": "a\0b"}, {"socket.timeout.ms": "soon"}],
)  # fmt: skip
async def test_options_that_make_no_client_are_refused(address, kafka):
    """What the library refuses, and what would crash it, is an error that names where to look."""
    with pytest.raises(InvalidOption, match=r"kafka=\{"):
        async with headwater.connect(address, kafka=kafka):
            pass


async def test_a_directory_that_cannot_be_one(tmp_path):
    """A file where the data directory should be is an error that names it."""
    file = tmp_path / "file"
    file.touch()
    for path in (file, file / "below"):
        with pytest.raises(InvalidSetting, match="cannot be used"):
            async with headwater.connect(data=path):
                pass


async def test_a_thread_without_a_loop_is_told_so(hw, name):
    """A verb that is called where no loop runs at all says that the client is another's."""
    with pytest.raises(NotConnected, match="another event loop"):
        await asyncio.to_thread(Stream(name).records)
