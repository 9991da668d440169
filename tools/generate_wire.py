"""Writes src/headwater/wire/messages/: one codec per API, from Kafka's own message definitions.

    python -m tools.generate_wire            write them (make wire)
    python -m tools.generate_wire --check    only compare, and say which differ

The definitions are the JSON files that kafka-python ships; its version stands in each generated file. A new API is one
line in `APIS`. The code is made for a broker in pure Python: neighbours of fixed size are read and written by one
`struct` call, a version is one comparison, and what a version lacks costs nothing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path

from tools.wire_definitions import (
    FIXED,
    KEPT_ENCODED,
    Field,
    Module,
    Struct,
    module_of_api,
    module_of_data,
    snake,
    source,
)

OUT = Path(__file__).resolve().parents[1] / "src" / "headwater" / "wire" / "messages"
APIS = (
    "Produce", "Fetch", "ListOffsets", "Metadata", "OffsetCommit", "OffsetFetch", "FindCoordinator", "JoinGroup",
    "Heartbeat", "LeaveGroup", "SyncGroup", "ApiVersions", "CreateTopics", "DeleteTopics", "InitProducerId",
    "OffsetForLeaderEpoch", "DescribeConfigs", "DescribeCluster",
)  # fmt: skip
DATA = ("ConsumerProtocolSubscription", "ConsumerProtocolAssignment")

FIELDS = OUT.parent / "fields.py"
LINE_CHARS = 116
Lines = list[str]

# --- writing the code ----------------------------------------------------------------------------


def choice(versions: Iterable[int], of: Callable[[int], str]) -> str:
    """An expression that gives `of(version)`: one name, or names parted by comparisons, newest first."""
    steps: list[tuple[int, str]] = []
    for version in versions:
        if not steps or steps[-1][1] != of(version):
            steps.append((version, of(version)))
    if len(steps) == 1:
        return steps[0][1]
    newer = " else ".join(f"{name} if version >= {low}" for low, name in reversed(steps[1:]))
    return f"({newer} else {steps[0][1]})"


def function_of(kind: Struct, one: Field, base: str) -> str:
    """The name in `fields.py` that reads (or, after `put_`, writes) a string, bytes, records or a count."""

    def name(version: int) -> str:
        nullable = one.kind == "records" or version in one.nullable
        said = "blob" if base == "bytes" and not nullable else base
        return f"{'compact_' if version in kind.flexible else ''}{'nullable_' if nullable else ''}{said}"

    return choice(one.versions, name)


def indented(lines: Iterable[str], by: int = 1) -> Lines:
    return ["    " * by + line for line in lines]


def when(condition: str, lines: Lines, otherwise: Lines | None = None) -> Lines:
    if not condition:
        return lines
    return [f"if {condition}:", *indented(lines), *(["else:", *indented(otherwise)] if otherwise else [])]


def runs(fields: Iterable[Field]) -> Iterator[list[Field]]:
    """Neighbours of fixed size with the same versions together, everything else alone."""
    run: list[Field] = []
    for one in fields:
        if run and not (one.is_fixed and run[-1].is_fixed and one.versions == run[-1].versions):
            yield run
            run = []
        run.append(one)
    if run:
        yield run


def format_of(run: list[Field]) -> str:
    """As `struct` writes it, but `t` for a truth value, so that it can stand in a name."""
    return "".join(FIXED[one.kind][0] for one in run).replace("?", "t")


def class_of(kind: Struct) -> Lines:
    names = [one.name for one in kind.fields]
    slots = ", ".join(f'"{name}"' for name in names) + ("," if len(names) == 1 else "")
    body = [f"__slots__ = ({slots})", ""]
    if names:
        takes = (
            f"{one.name}: {one.annotation(kind.is_answer)} = {'EMPTY' if one.default == '[]' else one.default}"
            for one in kind.fields
        )
        body += [f"def __init__(self, {', '.join(takes)}) -> None:"]
        body += indented(
            f"self.{one.name} = {one.name} if {one.name} is not EMPTY else []"
            if one.default == "[]"
            else f"self.{one.name} = {one.name}"
            for one in kind.fields
        )
    return ["", "", f"class {kind.name}(Message):", *indented(body)]


def blocks(kind: Struct) -> Iterator[tuple[str, list[list[Field]]]]:
    """The untagged fields as runs, neighbours with the same condition together: one comparison for all of them."""
    for condition, group in groupby(runs(kind.untagged), lambda run: run[0].versions.condition(kind.versions)):
        yield condition, list(group)


def reader_of(kind: Struct) -> Lines:
    body: Lines = []
    if any(one.is_array and one.kind not in FIXED for one in kind.fields):
        body += ["items: list[Any]", "item: Any"]
    for condition, block in blocks(kind):
        fields = [one for run in block for one in run]
        absent = [f"{one.name} = {one.default}" for one in fields]
        for one in fields:
            body += _declared(kind, one, bool(condition))
        body += when(condition, [line for run in block for line in _read(kind, run)], absent)
    body += _read_tags(kind)
    made = f"{kind.name}({', '.join(one.name for one in kind.fields)})"
    takes = "view: memoryview, at: int, version: int, budget: list[int]"
    head = f"def _read_{kind.name}({takes}) -> tuple[{kind.name}, int]:"
    return ["", "", head, *indented([*body, f"return {made}, at"])]


def _declared(kind: Struct, one: Field, maybe_absent: bool) -> Lines:
    if one.is_fixed or not (maybe_absent or one.is_array or list(one.nullable)):
        return []
    return [f"{one.name}: {one.annotation(kind.is_answer)}"]


def _read(kind: Struct, run: list[Field]) -> Lines:
    one = run[0]
    if one.is_array:
        return _read_array(kind, one)
    if one.kind in FIXED:
        size = sum(FIXED[each.kind][1] for each in run)
        comma = "," if len(run) == 1 else ""
        return [f"{', '.join(each.name for each in run)}{comma} = R_{format_of(run)}(view, at)", f"at += {size}"]
    if one.is_struct:
        return [f"{one.name}, at = _read_{one.kind}(view, at, version, budget)"]
    return [f"{one.name}, at = {function_of(kind, one, one.kind)}(view, at)"]


def _read_array(kind: Struct, one: Field) -> Lines:
    if one.kind in FIXED:
        code, size = FIXED[one.kind][:2]
        lines = [f'{one.name} = fixed_items(view, at, "{code}", number)', f"at += {size} * number"]
    elif one.is_struct:
        size = kind.structs[one.kind].bytes_min()
        lines = _read_items(one.name, f"_read_{one.kind}(view, at, version, budget)")
    else:
        compact = choice(one.versions, lambda version: f"{'compact_' * (version in kind.flexible)}string")
        size = min(1 if version in kind.flexible else 2 for version in one.versions)
        lines = _read_items(one.name, f"{compact}(view, at)")
    if list(one.nullable):
        lines = ["if number < 0:", f"    {one.name} = None", "else:", *indented(lines)]
    return [f"number, at = {function_of(kind, one, 'count')}(view, at, {size}, budget)", *lines]


def _read_items(name: str, call: str) -> Lines:
    return [f"{name} = items = []", "for _ in range(number):", f"    item, at = {call}", "    items.append(item)"]


def _read_tags(kind: Struct) -> Lines:
    if not list(kind.flexible):
        return []
    condition = kind.flexible.condition(kind.versions)
    if not kind.tagged:
        return when(condition, ["at = skip_tags(view, at, budget) if view[at] else at + 1"])
    lines: Lines = []
    for one in kind.tagged:
        lines += [f"{one.name}: {one.annotation(kind.is_answer)} = {one.default}"]
    cases: Lines = []
    for one in kind.tagged:
        test = " and ".join(filter(None, [f"tag == {one.tag}", one.versions.condition(kind.flexible)]))
        cases += [f"{'elif' if cases else 'if'} {test}:", *indented(_read(kind, [one]))]
    loop = ["tag, at, end = tag_header(view, at)", *cases, "else:", "    at = end", "tag_ends(at, end)"]
    read = ["number_of_tags, at = tag_count(view, at, budget)", "for _ in range(number_of_tags):", *indented(loop)]
    return lines + when(condition, read)


def writer_of(kind: Struct) -> Lines:
    body: Lines = []
    for condition, block in blocks(kind):
        body += when(condition, [line for run in block for line in _write(kind, run)])
    body += _write_tags(kind)
    head = "(parts: list[Part], out: bytearray, m: Any, version: int) -> bytearray:"
    if not kind.carries_records():
        return [
            "",
            "",
            f"def _write_{kind.name}(out: bytearray, m: Any, version: int) -> None:",
            *indented(body or ["pass"]),
        ]
    return ["", "", f"def _write_{kind.name}{head}", *indented([*body, "return out"])]


def _write(kind: Struct, run: list[Field]) -> Lines:
    one = run[0]
    if one.is_array:
        return _write_array(kind, one)
    if one.kind in FIXED:
        return [f"out += P_{format_of(run)}({', '.join(f'm.{each.name}' for each in run)})"]
    if one.is_struct:
        return [f"_write_{one.kind}(out, m.{one.name}, version)"]
    put = _put(function_of(kind, one, one.kind))
    if one.kind == "records":
        return [f"out = {put}(parts, out, m.{one.name})"]
    return [f"{put}(out, m.{one.name})"]


def _write_array(kind: Struct, one: Field) -> Lines:
    items = f"m.{one.name} or ()" if list(one.nullable) else f"m.{one.name}"
    lines = [f"{_put(function_of(kind, one, 'count'))}(out, m.{one.name})"]
    if one.kind in FIXED:
        return [*lines, f'put_fixed_items(out, "{FIXED[one.kind][0]}", {items})']
    if not one.is_struct:
        compact = _put(choice(one.versions, lambda version: f"{'compact_' * (version in kind.flexible)}string"))
        return [*lines, f"for item in {items}:", f"    {compact}(out, item)"]
    call = f"_write_{one.kind}(out, item, version)"
    if kind.structs[one.kind].carries_records():
        call = f"out = _write_{one.kind}(parts, out, item, version)"
    if one.kind in KEPT_ENCODED:
        kept = ["if item.__class__ is bytes:", "    out += item", "else:", f"    {call}"]
        return [*lines, f"for item in {items}:", *indented(kept)]
    return [*lines, f"for item in {items}:", f"    {call}"]


def _put(expression: str) -> str:
    return re.sub(r"\b((?:compact_)?(?:nullable_)?(?:string|blob|bytes|records|count))\b", r"put_\1", expression)


def _write_tags(kind: Struct) -> Lines:
    if not list(kind.flexible):
        return []
    condition = kind.flexible.condition(kind.versions)
    if not kind.tagged:
        return when(condition, ["out.append(0)"])
    lines = ["tags = []"]
    for one in kind.tagged:
        given = f"m.{one.name}" if one.is_array and one.default == "[]" else f"m.{one.name} is not None"
        if one.default not in {"None", "[]"}:
            given = f"m.{one.name} != {one.default}"
        test = " and ".join(filter(None, [one.versions.condition(kind.flexible), given]))
        value = [line.replace("out +=", "value +=").replace("(out,", "(value,") for line in _write(kind, [one])]
        lines += [f"if {test}:", "    value = bytearray()", *indented(value), f"    tags.append(({one.tag}, value))"]
    return when(condition, [*lines, "put_tags(out, tags) if tags else out.append(0)"])


# --- whole modules -------------------------------------------------------------------------------


def functions_of(made: Module, head: Struct) -> Lines:
    """The public functions for one message.

    What follows the last field is an error in an answer only. Kafka ignores it in requests, and has to be followed: when
    librdkafka asks for all topics it leaves three bytes too many (its issue 5049). And what members of a group tell each
    other may go on after what we know.
    """
    is_data = made.key is None
    is_request = head.name == "Request"
    suffix, said = ("", made.name) if is_data else (f"_{snake(head.name)}", f"{made.name} {snake(head.name)}")
    span = head.versions
    guard = indented([f"if not {span.low} <= version <= {span.high}:", f'    raise not_served("{said}", version)'])
    rest = (
        []
        if is_data or is_request
        else ["    if at != len(view):", f'        raise trailing("{said}", len(view) - at)']
    )
    written = ["    out = bytearray()", f"    _write_{head.name}(out, m, version)", "    return [out]"]
    if head.carries_records():
        written = [
            "    parts: list[Part] = []", f"    out = _write_{head.name}(parts, bytearray(), m, version)",
            "    if out:", "        parts.append(out)", "    return parts",
        ]  # fmt: skip
    return [
        "", "", f"def decode{suffix}(view: memoryview, version: int) -> {head.name}:", *guard, "    try:",
        f"        m, at = _read_{head.name}(view, 0, version, [ARRAY_ITEMS_MAX])", "    except READ_ERRORS as error:",
        f'        raise broken("{said}", error) from None', *rest, "    return m",
        "", "", f"def encode{suffix}(m: {head.name}, version: int) -> list[Part]:", *guard, *written,
    ]  # fmt: skip


def kept_functions(made: Module) -> Lines:
    lines: Lines = []
    for name in sorted(KEPT_ENCODED & set(made.structs)):
        lines += ["", "", f"def encode_{snake(name)}(m: {name}, version: int) -> bytes:"]
        lines += [
            '    """Stands for the same item in the answer, for whoever keeps it encoded."""',
            "    out = bytearray()",
        ]
        lines += [f"    _write_{name}(out, m, version)", "    return bytes(out)"]
    return lines


def text_of(made: Module) -> str:
    code: Lines = []
    for kind in made.structs.values():
        code += class_of(kind)
    for kind in made.structs.values():
        code += reader_of(kind) + writer_of(kind)
    for head in made.heads:
        code += functions_of(made, head)
    code += kept_functions(made)
    span, flexible = made.heads[0].versions, made.heads[0].flexible
    facts = [f"KEY, LOW, HIGH, FLEXIBLE_FROM = {made.key}, {span.low}, {span.high}, {flexible.low}", ""]
    lines = [
        f'"""Kafka\'s {made.name}. Generated by tools/generate_wire.py (`make wire`) from {source()}: do not edit."""',
        "", "from __future__ import annotations", "", "from typing import Any", "",
        "from headwater.config import ARRAY_ITEMS_MAX", *_imports("\n".join(code)), "",
        *(facts if made.key is not None else []), *_packers("\n".join(code)), *code,
    ]  # fmt: skip
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _imports(code: str) -> Lines:
    known = re.findall(r"^(?:def |class )?([A-Za-z]\w*)(?=[:(]| = )", FIELDS.read_text(), re.MULTILINE)
    used = sorted({"Struct", *(name for name in known if re.search(rf"\b{name}\b", code))})
    lines = ["from headwater.wire.fields import ("]
    for name in used:
        if len(lines[-1]) + len(name) > LINE_CHARS or lines[-1].endswith("("):
            lines.append("   ")
        lines[-1] += f" {name},"
    return [*lines, ")"]


def _packers(code: str) -> Lines:
    """The `struct` functions that are used: `R_` reads, `P_` packs."""
    used = sorted(set(re.findall(r"\b([RP])_(\w+)\(", code)), key=lambda one: one[::-1])
    method = {"R": "unpack_from", "P": "pack"}
    return [f'{way}_{name} = Struct(">{name.replace("t", "?")}").{method[way]}' for way, name in used]


def generated() -> dict[str, str]:
    """File name -> text, of all that is generated."""
    made = [*map(module_of_api, APIS), *map(module_of_data, DATA)]
    head = f'"""Generated by tools/generate_wire.py (`make wire`) from {source()}: do not edit."""\n'
    return {"__init__.py": head, **{f"{one.name}.py": text_of(one) for one in made}}


def main(arguments: list[str]) -> int:
    texts = generated()
    there = {path.name: path.read_text() for path in OUT.glob("*.py")}
    if "--check" in arguments:
        differ = sorted(name for name in texts.keys() | there.keys() if texts.get(name) != there.get(name))
        print(
            "\n".join(f"{name} is not what the generator writes: run `make wire`" for name in differ)
            or "all are as generated"
        )
        return 1 if differ else 0
    OUT.mkdir(exist_ok=True)
    for name in there.keys() - texts.keys():
        (OUT / name).unlink()
    for name, text in texts.items():
        (OUT / name).write_text(text)
    print(f"{len(texts)} files in {OUT}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
