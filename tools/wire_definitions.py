"""Kafka's message definitions, as the generator needs them: which field is there in which version, and in which form.

They are the JSON files that kafka-python ships (a development dependency), which are Apache Kafka's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata, resources
from typing import Any

SOURCE, FOLDER = "kafka-python", "kafka.protocol.schemas.resources"
# Items that may be given as bytes, encoded before: a broker that answers the same again and again keeps them.
KEPT_ENCODED = {"MetadataResponseTopic"}

# type -> struct code, bytes, Python type, default
FIXED: dict[str, tuple[str, int, str, str]] = {
    "bool": ("?", 1, "bool", "False"), "int8": ("b", 1, "int", "0"), "int16": ("h", 2, "int", "0"),
    "uint16": ("H", 2, "int", "0"), "int32": ("i", 4, "int", "0"), "uint32": ("I", 4, "int", "0"),
    "int64": ("q", 8, "int", "0"), "float64": ("d", 8, "float", "0.0"), "uuid": ("16s", 16, "bytes", "NO_ID"),
}  # fmt: skip
SIZED = {"string": ("str", '""'), "bytes": ("bytes", 'b""'), "records": ("memoryview", "None")}
READERS = {"string": "string", "bytes": "bytes", "records": "nullable_records"}


class NotUnderstood(Exception):
    """A definition with something the generator does not know: teach it, rather than write a wrong codec."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Versions from `low` to `high`, both included, as Kafka writes them. Empty when low > high."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str, within: Span | None = None) -> Span:
        top = within.high if within else 0x7FFF
        if text == "none":
            return cls(low=1, high=0)
        low, _, high = text.partition("-")
        span = cls(low=int(low.rstrip("+")), high=top if low.endswith("+") else int(high or low))
        return span.within(within) if within else span

    def within(self, other: Span) -> Span:
        return Span(low=max(self.low, other.low), high=min(self.high, other.high))

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.low, self.high + 1))

    def condition(self, within: Span) -> str:
        """What says that `version`, known to be `within`, is one of these; empty when all are."""
        if self.low <= within.low and self.high >= within.high:
            return ""
        if self.high >= within.high:
            return f"version >= {self.low}"
        if self.low <= within.low:
            return f"version <= {self.high}"
        return f"{self.low} <= version <= {self.high}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    name: str
    kind: str  # one of FIXED or SIZED, or the name of a struct
    is_array: bool
    versions: Span
    nullable: Span
    tag: int | None
    default: str

    @property
    def is_fixed(self) -> bool:
        return self.kind in FIXED and not self.is_array and self.tag is None

    @property
    def is_struct(self) -> bool:
        return self.kind not in FIXED and self.kind not in SIZED

    def type_of_item(self) -> str:
        return FIXED[self.kind][2] if self.kind in FIXED else SIZED[self.kind][0] if self.kind in SIZED else self.kind

    def annotation(self, answers: bool) -> str:
        said = self.type_of_item()
        if self.kind == "records":
            return "Any" if answers else "memoryview | None"
        if self.is_array:
            said = f"list[{'Any' if said in KEPT_ENCODED else said}]"
        return f"{said} | None" if list(self.nullable) or (self.is_struct and not self.is_array) else said


@dataclass(slots=True, kw_only=True)
class Struct:
    name: str
    fields: list[Field]
    structs: dict[str, Struct]  # all of the module, by name
    is_answer: bool
    versions: Span
    flexible: Span

    @property
    def untagged(self) -> list[Field]:
        return [one for one in self.fields if one.tag is None]

    @property
    def tagged(self) -> list[Field]:
        return sorted((one for one in self.fields if one.tag is not None), key=lambda one: one.tag or 0)

    def carries_records(self) -> bool:
        return any(
            one.kind == "records" or (one.is_struct and self.structs[one.kind].carries_records())
            for one in self.fields
        )  # fmt: skip

    def bytes_min(self) -> int:
        return min(self._bytes_in(version) for version in self.versions)

    def _bytes_in(self, version: int) -> int:
        compact = version in self.flexible
        total = int(compact)
        for one in self.untagged:
            if version in one.versions:
                total += FIXED[one.kind][1] if one.is_fixed else 1 if compact else 2 if one.kind == "string" else 4
        return total


@dataclass(slots=True, kw_only=True)
class Module:
    """What one generated file is made of."""

    name: str
    heads: list[Struct]
    structs: dict[str, Struct] = field(default_factory=dict)
    key: int | None = None


# --- reading the definitions ---------------------------------------------------------------------


def definition(name: str) -> dict[str, Any]:
    text = resources.files(FOLDER).joinpath(f"{name}.json").read_text()
    found: dict[str, Any] = json.loads(re.sub(r"(?m)^\s*//.*$", "", text))
    return found


def module_of_api(api: str) -> Module:
    """Without a latest version that is marked unstable: Kafka does not advertise those."""
    made = Module(name=snake(api), heads=[])
    unstable = definition(api + "Request").get("latestVersionUnstable", False)
    for head in ("Request", "Response"):
        raw = definition(api + head)
        if unstable:
            versions = Span.parse(raw["validVersions"])
            raw["validVersions"] = f"{versions.low}-{versions.high - 1}"
        made.key = raw.get("apiKey", made.key)
        made.heads.append(_head(raw, head, made.structs))
    return made


def module_of_data(name: str) -> Module:
    made = Module(name=snake(name), heads=[])
    made.heads.append(_head(definition(name), name, made.structs))
    return made


def _head(raw: dict[str, Any], name: str, structs: dict[str, Struct]) -> Struct:
    versions = Span.parse(raw["validVersions"])
    shared = {one["name"]: one for one in raw.get("commonStructs", ())}
    kind = Struct(
        name=name, fields=[], structs=structs, is_answer=raw["type"] == "response",
        versions=versions, flexible=Span.parse(raw["flexibleVersions"], versions),
    )  # fmt: skip
    _fill(kind, raw["fields"], shared)
    return kind


def _fill(kind: Struct, fields: list[dict[str, Any]], shared: dict[str, Any]) -> None:
    for raw in fields:
        versions = Span.parse(raw["versions"], kind.versions)
        if not list(versions):
            continue
        one = _field(raw, versions)
        if one.is_struct:
            if one.kind in kind.structs:
                raise NotUnderstood(f"{one.kind} is named by two fields of one module")
            inner = Struct(
                name=one.kind, fields=[], structs=kind.structs, is_answer=kind.is_answer,
                versions=versions, flexible=kind.flexible.within(versions),
            )  # fmt: skip
            _fill(inner, raw.get("fields") or shared[one.kind]["fields"], shared)
        kind.fields.append(one)
    kind.structs[kind.name] = kind


def _field(raw: dict[str, Any], versions: Span) -> Field:
    is_array = raw["type"].startswith("[]")
    one = Field(
        name=snake(raw["name"]), kind=raw["type"].removeprefix("[]"), is_array=is_array, versions=versions,
        nullable=Span.parse(raw.get("nullableVersions", "none"), versions), tag=raw.get("tag"),
        default=_default(raw, is_array),
    )  # fmt: skip
    if one.tag is not None and Span.parse(raw["taggedVersions"], versions) != versions:
        raise NotUnderstood(f"{one.name} is tagged in some of its versions only")
    if one.is_struct and not is_array and one.tag is None:
        raise NotUnderstood(f"{one.name} is a struct, neither tagged nor in an array")
    return one


def _default(raw: dict[str, Any], is_array: bool) -> str:
    kind, said = raw["type"], raw.get("default")
    if said == "null" or (kind[0].isupper() and not is_array):
        return "None"
    if is_array:
        return "[]"
    if kind in FIXED:
        return FIXED[kind][3] if said is None else str(said).capitalize() if kind == "bool" else str(int(str(said), 0))
    return SIZED[kind][1] if said is None or kind == "records" else repr(said).replace("'", '"')


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def source() -> str:
    return f"{SOURCE} {metadata.version(SOURCE)}"
