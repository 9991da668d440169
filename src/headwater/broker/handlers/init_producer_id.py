"""InitProducerId (22), versions 0-5.

v2 flexible; v3 the producer's old id and epoch (KIP-360); v4 fenced producers. An id without its epoch is INVALID_REQUEST. Gives an idempotent
producer an id that nobody had before, at epoch 0: also when it comes with an old one, as Kafka does.

Differs from Kafka: a transactional id is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, at which librdkafka and the
Java client stop with an error of their own instead of asking again for ever.
"""

from __future__ import annotations

from headwater.broker.context import Context
from headwater.errors import InvalidRequest, TransactionsNotServed, WireError
from headwater.wire.messages.init_producer_id import Request, Response


async def handle(request: Request, context: Context) -> Response:
    """Cancelling forgets the id, which is never given to anybody else."""
    if request.transactional_id is not None:
        refused = TransactionsNotServed if request.transactional_id else InvalidRequest
        return Response(error_code=refused.code, producer_epoch=-1)
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        return Response(error_code=InvalidRequest.code, producer_epoch=-1)
    try:
        producer_id = await context.broker.durable(context.broker.store.producer_id())
    except WireError as why:
        return Response(error_code=why.code, producer_epoch=-1)
    return Response(producer_id=producer_id, producer_epoch=0)
