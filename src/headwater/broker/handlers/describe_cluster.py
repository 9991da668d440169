"""DescribeCluster (60), versions 0-2.

v1 endpoint type (brokers or controllers); v2 fenced brokers. One node, number 1, which is the controller as well.

Differs from Kafka: the cluster id begins with `headwater-`, which tells our own clients what they may ask for.
Authorized operations are never told: there is nobody to authorize yet.
"""

from __future__ import annotations

from headwater.broker.context import Context
from headwater.broker.server import NODE_ID
from headwater.wire.messages.describe_cluster import DescribeClusterBroker, Request, Response

BROKERS = 1
CONTROLLERS = 2
MISMATCHED_ENDPOINT_TYPE, UNSUPPORTED_ENDPOINT_TYPE = 114, 115


async def handle(request: Request, context: Context) -> Response:
    if request.endpoint_type != BROKERS:
        known = request.endpoint_type == CONTROLLERS
        return Response(
            error_code=MISMATCHED_ENDPOINT_TYPE if known else UNSUPPORTED_ENDPOINT_TYPE,
            error_message="this is a broker: ask with endpoint type 1",
        )
    broker = context.broker
    host, port = broker.advertised
    return Response(
        cluster_id=broker.store.cluster_id,
        controller_id=NODE_ID,
        brokers=[DescribeClusterBroker(broker_id=NODE_ID, host=host, port=port)],
    )
