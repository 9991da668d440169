"""What a client asks its server about streams: which are there, what they carry, make one, delete one.

Kafka answers a create or delete before all of its brokers know; both wait here until the server's own view agrees, so
that the next call meets what this one did.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, cast

from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from headwater.config import CLUSTER_ID_PREFIX, SDK_ANSWER_SECONDS
from headwater.errors import ConnectionFailed, InvalidReplicationFactor, StreamDiffers, StreamExists, StreamNotFound
from headwater.model import stream_name
from headwater.sdk.border import (
    MISSING,
    answered,
    client_options,
    in_thread,
    made,
    mapped,
    not_found,
    persist,
    unreachable,
)
from headwater.sdk.declare.options import StreamOptions, raw_configs
from headwater.sdk.describe import PartitionDescription, StreamDescription

_AGREE_SECONDS = 0.02  # between two looks at whether the server's view agrees
_INTERNAL = "__"  # Kafka's own streams begin so
_WORD = 2**64 - 1


class Server:
    """The administrative side of one connection."""

    def __init__(self, address: str, kafka: Mapping[str, Any]) -> None:
        self._admin = made(AdminClient, client_options(address, kafka))
        self._address, self._kafka = address, kafka
        self.cluster_id = ""

    async def meet(self, seconds: float) -> None:
        """Waits until the server answers, and learns its kind: once per connect, never tried later (rule 11)."""
        try:
            answer = await answered(
                self._admin.describe_cluster(request_timeout=seconds), f"connect to {self._address}", seconds=seconds
            )
        except ConnectionFailed:
            raise ConnectionFailed(
                f"nobody answers at {self._address} within {seconds:g} s: start a server there (`headwater up`), or "
                f"correct the address{' or the options in kafka={...}' if self._kafka else ''}"
            ) from None
        self.cluster_id = answer.cluster_id or ""

    @property
    def is_headwater(self) -> bool:
        return self.cluster_id.startswith(CLUSTER_ID_PREFIX)

    async def find(self, name: str) -> Any | None:
        """The stream as the server has it, or None. Never makes it."""
        future = self._admin.describe_topics(TopicCollection([name]), request_timeout=SDK_ANSWER_SECONDS)[name]
        try:
            return await answered(future, f"look for stream {name!r}", stream=name)
        except StreamNotFound:
            return None

    def identify(self, name: str) -> bytes | None:
        """The id of the stream, or None. Blocks: for a member's thread, which also takes no answer for no change."""
        try:
            future = self._admin.describe_topics(TopicCollection([name]), request_timeout=SDK_ANSWER_SECONDS)[name]
            return id_of(future.result(SDK_ANSWER_SECONDS))
        except KafkaException as error:
            if error.args[0].code() in MISSING:
                return None
            raise mapped(error.args[0], f"look for stream {name!r}", name) from None

    async def partitions(self, name: str) -> int:
        found = await self.find(name)
        if found is None:
            raise not_found(name)
        return len(found.partitions)

    async def names(self) -> list[str]:
        doing = "list the streams"
        found = await persist(
            lambda: in_thread(doing, asyncio.to_thread(self._admin.list_topics, timeout=SDK_ANSWER_SECONDS))
        )
        return sorted(name for name in found.topics if not name.startswith(_INTERNAL))

    async def create(self, name: str, options: StreamOptions) -> None:
        """Makes the stream; one that exists is compared with `options`, and only with what stands in them."""
        stream = NewTopic(
            name,
            num_partitions=options.get("partitions", -1),
            replication_factor=options.get("replication_factor", -1),
            config=raw_configs(options),
        )
        doing = f"create stream {name!r}"
        try:
            await answered(self._admin.create_topics([stream], request_timeout=SDK_ANSWER_SECONDS)[name], doing)
        except StreamExists:
            await self._compare(name, options)
        except InvalidReplicationFactor:
            raise await self._too_few_brokers(options.get("replication_factor", -1)) from None
        else:
            await self._until(name, there=True)
            if not self.is_headwater:  # a cluster's leaders may learn a little later that they are
                await self._offsets(name, range(await self.partitions(name)), OffsetSpec.latest())  # type: ignore[no-untyped-call]

    async def _compare(self, name: str, options: StreamOptions) -> None:
        found = await self.find(name)
        if found is None and not self.is_headwater:  # a cluster tells of what another program has just made a bit later
            with contextlib.suppress(ConnectionFailed):
                await self._until(name, there=True)
            found = await self.find(name)
        if found is None:  # deleted at the same moment: say what the server said
            raise StreamExists(f"cannot create stream {name!r}: it is being deleted: try again")
        has: dict[str, object] = {
            "partitions": len(found.partitions),
            "replication_factor": len(found.partitions[0].replicas) if found.partitions else 0,
        }
        said: dict[str, object] = {option: options[option] for option in has if option in options}  # type: ignore[literal-required]
        wanted = raw_configs(options)
        if wanted or "persistence" in options:
            configs = await self._configs(name)
            has["persistence"] = persistence_of(configs)
            if "persistence" in options:
                said["persistence"] = options["persistence"]
            for raw, text in wanted.items():
                if raw != "flush.messages" or "persistence" not in options:
                    has[raw], said[raw] = configs.get(raw), text
        different = [
            f"{key}={has[key]!r} where the program says {text!r}" for key, text in said.items() if has[key] != text
        ]
        if different:
            raise StreamDiffers(
                f"stream {name!r} exists with {', '.join(different)}: write what is there, leave the option out, or "
                f"delete the stream first"
            )

    async def _too_few_brokers(self, wanted: int) -> InvalidReplicationFactor:
        cluster = await answered(self._admin.describe_cluster(), "count the brokers")
        return InvalidReplicationFactor(
            f"replication_factor={wanted} needs {wanted} brokers, this server has {len(cluster.nodes)}: leave it out, "
            f"or connect to a cluster"
        )

    async def delete(self, name: str) -> None:
        doing = f"delete stream {stream_name(name)!r}"
        future = self._admin.delete_topics([name], request_timeout=SDK_ANSWER_SECONDS)[name]
        with contextlib.suppress(StreamNotFound):
            await answered(future, doing, stream=name)
        await self._until(name, there=False)

    async def _until(self, name: str, *, there: bool) -> None:
        deadline = time.monotonic() + SDK_ANSWER_SECONDS
        while time.monotonic() < deadline:
            found = await self.find(name)
            if not there and found is None:
                return
            if there and found is not None and all(one.leader is not None for one in found.partitions):
                return
            await asyncio.sleep(_AGREE_SECONDS)
        agreed = "there" if there else "gone"
        raise unreachable(f"see stream {name!r} {agreed}", f"not within {SDK_ANSWER_SECONDS:g} s")

    async def describe(self, name: str) -> StreamDescription:
        found = await self.find(name)
        if found is None:
            raise not_found(name)
        places = [partition.id for partition in found.partitions]
        starts = await self._offsets(name, places, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        ends = await self._offsets(name, places, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        partitions = [
            PartitionDescription(index=place, start=start, end=end)
            for place, start, end in zip(places, starts, ends, strict=True)
        ]
        entries = await self._entries(name)
        configs = {key: entry.value or "" for key, entry in entries.items()}
        return StreamDescription(
            name=name,
            id=id_of(found).hex(),
            partitions=tuple(partitions),
            replication_factor=len(found.partitions[0].replicas) if found.partitions else 0,
            persistence=persistence_of(configs),
            configs={key: configs[key] for key, entry in entries.items() if _is_set(entry)},
            all_configs=configs,
            created=_time(configs.get("headwater.created.ms")),
            updated=_time(configs.get("headwater.updated.ms")),
        )

    async def _offsets(self, name: str, partitions: Iterable[int], which: Any) -> list[int]:
        places = [TopicPartition(name, one) for one in partitions]

        async def ask() -> list[int]:
            futures = self._admin.list_offsets(dict.fromkeys(places, which))
            return [(await answered(futures[one], f"describe stream {name!r}", stream=name)).offset for one in places]

        return await persist(ask)

    async def record_bytes_max(self, name: str) -> str:
        """What a batch of this stream may have, as the server says it."""
        return (await self._configs(name)).get("max.message.bytes", "fewer")

    async def _configs(self, name: str) -> dict[str, str]:
        return {key: entry.value or "" for key, entry in (await self._entries(name)).items()}

    async def _entries(self, name: str) -> dict[str, Any]:
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        future = self._admin.describe_configs([resource])[resource]
        return cast("dict[str, Any]", await answered(future, f"describe stream {name!r}", stream=name))


def id_of(found: Any) -> bytes:
    """The stream's 16-byte id, from the two signed halves that librdkafka gives."""
    uuid = found.topic_id
    high, low = uuid.get_most_significant_bits(), uuid.get_least_significant_bits()
    return bytes(((high & _WORD) << 64 | (low & _WORD)).to_bytes(16, "big"))


def persistence_of(configs: Mapping[str, str]) -> str:
    return "file_sync" if configs.get("flush.messages") == "1" else "file_async"


def _is_set(entry: Any) -> bool:
    return bool(entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value and not entry.is_read_only)


def _time(ms: str | None) -> datetime | None:
    return datetime.fromtimestamp(int(ms) / 1000, UTC) if ms else None
