"""A shop's orders: one typed stream that lands in one table. `headwater run shop.py` is all it takes."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field

from headwater import Key, Stream, Table


class Line(BaseModel):
    sku: str
    count: int = Field(ge=1)
    price: float


class Order(BaseModel):
    id: Key[str]
    customer: str
    country: Literal["DE", "FR", "IT", "JP", "US"]
    placed: datetime
    lines: list[Line]
    total: float = Field(ge=0)
    note: str | None = None


orders = Stream[Order]("orders", destination=Table[Order]("orders"))
