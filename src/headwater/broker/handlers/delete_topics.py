"""DeleteTopics (20), versions 1-6.

v4 flexible; v5 error messages; v6 by name or by id. Answered when the stream is gone for good: a kill after the answer
does not bring it back, and its name is free.

Its groups are told, so that a member's late commit does not reach a stream that is created under the name again.
"""

from __future__ import annotations

from collections import Counter

from headwater.broker.context import Context
from headwater.errors import InvalidRequest, UnknownStream, UnknownStreamId, WireError
from headwater.model import StreamId, StreamName
from headwater.wire.fields import NO_ID
from headwater.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicState, Request, Response

BY_ID_FROM = 6


async def handle(request: Request, context: Context) -> Response:
    """Cancelling forgets the answer: what was begun is deleted."""
    asked = (
        request.topics if context.version >= BY_ID_FROM else [DeleteTopicState(name=one) for one in request.topic_names]
    )
    said = [(one.name, one.topic_id) for one in asked]
    responses = []
    counts = Counter(said)
    for one in counts:
        result = DeletableTopicResult(name=one[0], topic_id=one[1])
        responses.append(result)
        try:
            if counts[one] > 1:
                raise InvalidRequest("the stream is named more than once in this request")
            await _delete(result, context)
        except WireError as why:
            result.error_code, result.error_message = why.code, str(why)
    return Response(responses=responses)


async def _delete(result: DeletableTopicResult, context: Context) -> None:
    broker = context.broker
    if (result.name is None) == (result.topic_id == NO_ID):
        raise InvalidRequest("a stream is deleted by its name or by its id: give one of them")
    if result.name is not None:
        entry = broker.store.stream(StreamName(result.name))
        if entry is None:
            raise UnknownStream(f"there is no stream {result.name!r}")
    else:
        entry = broker.store.stream_by_id(StreamId(result.topic_id))
        if entry is None:
            raise UnknownStreamId(f"there is no stream with the id {result.topic_id.hex()}")
    await broker.delete_stream(entry)
    result.name, result.topic_id = entry.name, entry.id
