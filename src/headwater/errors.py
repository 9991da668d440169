"""Every exception of Headwater, in one tree, ordered by who must act.

- `CallerError`: the program that asked. It named something that is not there, or asked for what cannot be.
  A `WireError` is one that travels over the Kafka protocol; its `code` is Kafka's number for it.
- `PeerError`: the other end of a connection broke the protocol; the connection closes.
- `OperatorError`: whoever runs Headwater. The message ends with what to do.

Each message says what happened, why, and what to do. Foreign exceptions are mapped once, at the border.
"""

from __future__ import annotations

from typing import Any, ClassVar


class HeadwaterError(Exception):
    """The root: catch this to catch everything Headwater raises."""


class ImpossibleMove(HeadwaterError):
    """A state machine was asked for a move that its table does not have: a bug of ours, never a caller's fault."""


# --- the caller ----------------------------------------------------------------------------------


class CallerError(HeadwaterError):
    """The caller asked for something that cannot be done as asked."""


class WireError(CallerError):
    """A refusal that Kafka's protocol has a number for."""

    code: ClassVar[int]


class OffsetOutOfRange(WireError):
    code = 1


class CorruptBatch(WireError):
    """A record batch whose bytes contradict its checksum or its own lengths."""

    code = 2


class UnknownStream(WireError):
    """No stream of that name, or no such partition in it."""

    code = 3


class RecordTooLarge(WireError):
    code = 10


class CursorMetadataTooLarge(WireError):
    code = 12


class CoordinatorNotAvailable(WireError):
    """The group is being deleted at this moment; the caller asks again."""

    code = 15


class NotCoordinator(WireError):
    """The broker is about to stop: the caller looks for the coordinator again and finds the next start."""

    code = 16


class InvalidStreamName(WireError):
    code = 17


class InvalidAcks(WireError):
    code = 21


class IllegalGeneration(WireError):
    """A member spoke for a generation of its group that is over."""

    code = 22


class InconsistentGroupProtocol(WireError):
    code = 23


class InvalidGroupName(WireError):
    code = 24


class UnknownMember(WireError):
    code = 25


class InvalidSessionTimeout(WireError):
    code = 26


class RebalanceInProgress(WireError):
    code = 27


class InvalidTimestamp(WireError):
    code = 32


class UnsupportedVersion(WireError):
    code = 35


class StreamExists(WireError):
    code = 36


class InvalidPartitions(WireError):
    code = 37


class InvalidReplicationFactor(WireError):
    code = 38


class InvalidReplicaAssignment(WireError):
    code = 39


class InvalidConfig(WireError):
    code = 40


class InvalidRequest(WireError):
    code = 42


class OutOfOrderSequence(WireError):
    code = 45


class InvalidProducerEpoch(WireError):
    code = 47


class TransactionsNotServed(WireError):
    """A transactional id. Of Kafka's codes (this is TRANSACTIONAL_ID_AUTHORIZATION_FAILED) clients stop cleanly at it."""

    code = 53


class StorageFailed(WireError):
    """The disk refused a write or a flush, or bytes on it have rotted."""

    code = 56


class UnknownProducer(WireError):
    code = 59


class NonEmptyGroup(WireError):
    """The group has members, so it cannot be deleted."""

    code = 68


class GroupNotFound(WireError):
    code = 69


class FetchSessionNotFound(WireError):
    """No fetch sessions are kept: a client that speaks of one begins anew."""

    code = 70


class FencedLeaderEpoch(WireError):
    code = 74


class UnknownLeaderEpoch(WireError):
    code = 75


class UnsupportedCompression(WireError):
    code = 76


class MemberIdRequired(WireError):
    """Not a failure: the member is told its new id and joins again with it (KIP-394)."""

    code = 79


class GroupFull(WireError):
    code = 81


class FencedInstance(WireError):
    """Another member took over this static member's `group.instance.id`."""

    code = 82


class InvalidRecord(WireError):
    """A record batch whose header contradicts itself."""

    code = 87


class UnknownStreamId(WireError):
    code = 100


class GroupKindMismatch(CallerError):
    """A group name that is already used for the other kind (ordered group or queue)."""


class NotConnected(CallerError):
    """A declared stream was used while no client is open, or while several are."""


class StreamNotFound(CallerError):
    """The server has no stream of that name; `create()` makes it."""


class StreamDiffers(CallerError):
    """A stream exists with other options than the program wrote."""


class InvalidOption(CallerError):
    """An option that is unknown, not built yet, or contradicts another."""


class InvalidValue(CallerError):
    """A value that is not what the stream's model says, or that JSON cannot carry."""


class PublishFailed(CallerError):
    """Some of several records were not acknowledged; `receipts` has what was written, None for what was not."""

    def __init__(self, message: str, *, receipts: tuple[Any, ...] = ()) -> None:
        super().__init__(message)
        self.receipts = receipts


class HandlerError(CallerError):
    """A handler raised; carries stream, partition and offset of the record it was given."""

    def __init__(self, message: str, *, stream: str = "", partition: int = -1, offset: int = -1) -> None:
        super().__init__(message)
        self.stream, self.partition, self.offset = stream, partition, offset


class RecordsLost(CallerError):
    """A reader's position is no longer (or not yet) in the log."""


class ModelNotSupported(CallerError):
    """A model has a field that a table cannot hold; names field, type and the way out."""


class AlreadyLanded(CallerError):
    """Another driver moved the table's token first: what this one wrote was not committed, and is not needed."""


class TableNotFound(CallerError):
    """There is no table of that name; lists those there are."""


class QueryFailed(CallerError):
    """SQL that cannot be run as it stands."""


# --- the peer ------------------------------------------------------------------------------------


class PeerError(HeadwaterError):
    """The other end of a connection broke the rules; the connection closes."""


class ProtocolError(PeerError):
    """Bytes that are not what Kafka's protocol allows: too short, too long, or beyond a limit."""


class ConnectionFailed(PeerError):
    """The server could not be reached, or went away and did not come back in time."""


class PartitionSilent(ConnectionFailed):
    """The server answers, and one of its partitions gives none of the records it says it has."""


# --- the operator --------------------------------------------------------------------------------


class OperatorError(HeadwaterError):
    """Something about the machine, the data directory or the settings; the message ends with what to do."""


class DataDirectoryHeld(OperatorError):
    """Another process owns the data directory."""


class FormatTooNew(OperatorError):
    """The data directory was written by a newer Headwater."""


class DataDamaged(OperatorError):
    """Bytes on disk are not what was written: named by file, never skipped in silence."""


class InvalidSetting(OperatorError):
    """A flag, an environment variable or a line of headwater.toml that cannot be."""


class CannotListen(OperatorError):
    """The address is taken, or beyond loopback without `--insecure`."""


class NotInstalled(OperatorError):
    """A part of Headwater that comes with an extra (or Java) is missing; names the command."""


class LandingRefused(OperatorError):
    """A table's token and its log (or its own history) contradict each other; says how to choose."""


class LandingFailed(OperatorError):
    """A landing that cannot go on: names the cause in one line; Spark's log has the rest."""
