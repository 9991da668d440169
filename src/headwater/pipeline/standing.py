"""At start the tables' tokens are held against the log: does it still have what was landed, and nothing else in its place?

Names are used again after a delete, offsets after a power cut. So the stream's id is compared first (tokens of another
id are another stream's, and this one lands from its beginning), then each token is probed: the log is asked whether its
epoch still reaches up to its end. Where the log was cut, the token goes back to the cut, and what was written there since
lands like anything new; the records of before stay in the table, told apart by `_epoch`. An ordinary restart of the
server also raises the epoch, and moves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from headwater.config import LAND_PROBES_AT_ONCE
from headwater.lake import Advance, Landed, Place, Target, landed, move
from headwater.pipeline.landing import StreamLanding
from headwater.sdk.ranges import RangeAdmin, Standing, StreamFacts, probe


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A token that the log contradicted, and where it is now."""

    table: str
    stream: str
    partition: int
    token: Landed
    standing: Standing

    def __str__(self) -> str:
        where = f"{self.stream}/{self.partition}"
        if self.standing.kind == "cut":
            return (
                f"{where} was cut at offset {self.standing.offset}, and {self.table} had landed it up to "
                f"{self.token.end}: what is written there since lands now, and the lost records stay in the table "
                f"(_epoch {self.token.epoch} and before)"
            )
        return (
            f"{where} begins at offset {self.standing.offset}, and {self.table} had landed it up to {self.token.end}: "
            f"{self.standing.offset - self.token.end} offsets were deleted before they could land"
        )


def held_against_the_log(
    client: Mapping[str, Any],
    catalog: Any,
    streams: Iterable[tuple[Sequence[Target], Any, StreamFacts]],
) -> tuple[list[StreamLanding], list[Moved]]:
    """The streams as landing goes on with them, and the tokens that had to move."""
    admin = RangeAdmin(client)
    landings, moved = [], []
    for targets, model, facts in streams:
        tokens = {target.table: landed(catalog, target, facts.stream_id) for target in targets}
        starts = admin.starts([(facts.name, index) for index in range(facts.partitions)])
        landing = StreamLanding(
            name=facts.name,
            stream_id=facts.stream_id,
            targets=tuple(targets),
            model=model,
            tokens=tokens,
            starts={index: Landed(end=offset, epoch=-1) for (_, index), offset in starts.items()},
        )
        standings = _probed(client, landing)
        for target in targets:
            moved += _corrected(catalog, target, landing, standings)
        landings.append(landing)
    return landings, moved


def _probed(client: Mapping[str, Any], landing: StreamLanding) -> dict[tuple[int, Landed], Standing]:
    """Each token once, though two tables mostly have the same."""
    wanted = {(index, token) for tokens in landing.tokens.values() for index, token in tokens.items()}

    def ask(one: tuple[int, Landed]) -> Standing:
        index, token = one
        if token.epoch < 0:  # nothing but gaps was landed so far: nothing can be landed twice
            start = landing.starts[index].end if index in landing.starts else 0
            return Standing(kind="prefix gone" if start > token.end else "cut", offset=start)
        return probe(client, landing.name, index, token.end, token.epoch)

    with ThreadPoolExecutor(LAND_PROBES_AT_ONCE, thread_name_prefix="probe") as pool:
        return dict(zip(wanted, pool.map(ask, wanted), strict=True))


def _corrected(
    catalog: Any, target: Target, landing: StreamLanding, standings: Mapping[tuple[int, Landed], Standing]
) -> list[Moved]:
    """Moves the tokens of one table that the log contradicts, in one commit."""
    tokens = landing.tokens[target.table]
    moves: dict[Place, Advance] = {}
    said = []
    for index, token in tokens.items():
        standing = standings[index, token]
        if standing.offset == token.end:
            continue
        moves[landing.place(index)] = Advance(seen=token, to=Landed(end=standing.offset, epoch=token.epoch))
        if token.epoch >= 0 or standing.kind == "prefix gone":  # a token of gaps alone goes back without any loss
            said.append(Moved(table=target.table, stream=landing.name, partition=index, token=token, standing=standing))
    if moves:
        move(catalog, target, moves)
        tokens.update({place.partition: advance.to for place, advance in moves.items()})
    return said
