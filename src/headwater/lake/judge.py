"""A record's bytes become what its columns hold, or a letter that says why not.

One record at a time: validate, take the fields, drop the model. (Measured: keeping the models of a chunk doubles the
time, which the garbage collector takes.) Whatever a validator raises makes a dead letter; what is not an `Exception`
(an exit, Ctrl-C) passes.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from operator import itemgetter
from typing import Any, Protocol

from pydantic import TypeAdapter, ValidationError

from headwater import config
from headwater.lake.columns import Column, columns_of, dumps_plainly, members_of


class Polled(Protocol):
    """One record as the range reader gives it."""

    @property
    def offset(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """Why a record is not in the table."""

    record: Polled
    error_type: str
    error_message: str
    error_stack: str | None
    failed_at: datetime

    @classmethod
    def of(cls, record: Polled, error: Exception) -> Letter:
        return cls(
            record=record,
            error_type=type(error).__name__,
            error_message=_bounded("\n".join([str(error), *getattr(error, "__notes__", ())])),
            error_stack=_stack(error),
            failed_at=datetime.now(UTC),
        )


class NoValue(ValueError):
    """A record without a value: a tombstone, which no model describes."""


class Judge:
    """Judges the records of one stream by its model. Pickles: what is compiled is compiled again where it is used."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def __getstate__(self) -> dict[str, Any]:
        return {"model": self.model}

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return columns_of(self.model)

    def judge(self, records: Sequence[Polled]) -> tuple[list[Polled], list[tuple[Any, ...]], list[Letter]]:
        """The records that are valid, their values column by column in the same order, and letters for the others."""
        kept: list[Polled] = []
        values: list[tuple[Any, ...]] = []
        letters: list[Letter] = []
        take = self._take
        for record in records:
            try:
                values.append(take(record.value))
            except Exception as error:  # noqa: BLE001  a validator is a program of the user's: anything may come
                letters.append(Letter.of(record, error))
            else:
                kept.append(record)
        by_column = list(zip(*values, strict=True)) if values else [() for _ in self.columns]
        return kept, by_column, letters

    @cached_property
    def _take(self) -> Callable[[bytes | None], tuple[Any, ...]]:
        """Bytes -> the fields of one record, in the order of the columns, as they go into Arrow."""
        adapter: TypeAdapter[Any] = TypeAdapter(self.model)
        validate = adapter.validator.validate_json
        names = [column.name for column in self.columns]
        fields = self._fields(adapter, names)
        converts = [(at, column.convert) for at, column in enumerate(self.columns) if column.convert is not None]

        def take(value: bytes | None) -> tuple[Any, ...]:
            if value is None:
                raise NoValue("the record has no value (a tombstone), and the table keeps only values")
            return fields(validate(value))

        def take_and_convert(value: bytes | None) -> tuple[Any, ...]:
            taken = list(take(value))
            for at, convert in converts:
                if taken[at] is not None:
                    try:
                        taken[at] = convert(taken[at])
                    except Exception as error:
                        error.add_note(f"{names[at]}: the column holds {self.columns[at].type}")
                        raise
            return tuple(taken)

        return take_and_convert if converts else take

    def _fields(self, adapter: TypeAdapter[Any], names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
        if not dumps_plainly(self.model):
            dump = adapter.serializer.to_python
            return lambda value: tuple(map(dump(value, by_alias=False).get, names))
        if len(members_of(self.model)) > 1 or len(names) == 1:
            return lambda value: tuple(map(value.__dict__.get, names))
        get = itemgetter(*names)
        return lambda value: get(value.__dict__)


def _bounded(text: str) -> str:
    limit = config.LAND_ERROR_CHARS_MAX
    text = text.encode("utf-8", "backslashreplace").decode()  # a column holds UTF-8 only
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _stack(error: Exception) -> str | None:
    """The frames of the user's own code, if any: ours say nothing about the record, and pydantic's are not Python."""
    if isinstance(error, ValidationError | NoValue) or error.__traceback__ is None:
        return None
    frames = [one for one in traceback.extract_tb(error.__traceback__) if one.filename != __file__]
    return _bounded("".join(traceback.format_list(frames)).strip()) or None
