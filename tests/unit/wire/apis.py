"""Every generated codec, for tests that walk them all: each API, each served version, both heads."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

from tools.generate_wire import APIS, DATA
from tools.wire_definitions import snake


class Codec(NamedTuple):
    """One head of one API in one version: how to read it and how to write it."""

    api: str
    key: int
    head: str
    version: int
    decode: Callable[[memoryview, int], Any]
    encode: Callable[[Any, int], list[Any]]

    def read(self, raw: bytes | memoryview) -> Any:
        return self.decode(memoryview(raw), self.version)

    def write(self, message: Any) -> bytes:
        return b"".join(self.encode(message, self.version))

    def __str__(self) -> str:
        return f"{self.api}-{self.head}-v{self.version}"


def module(api: str) -> ModuleType:
    return import_module(f"headwater.wire.messages.{snake(api)}")


def codecs() -> list[Codec]:
    return [
        Codec(
            api, made.KEY, head, version, getattr(made, f"decode_{head}"), getattr(made, f"encode_{head}")
        )
        for api, made in ((api, module(api)) for api in APIS)
        for head in ("request", "response")
        for version in range(made.LOW, made.HIGH + 1)
    ]  # fmt: skip


def data_codecs() -> list[Codec]:
    return [
        Codec(name, -1, "data", version, made.decode, made.encode)
        for name, made in ((name, module(name)) for name in DATA)
        for version in range(4)
    ]
