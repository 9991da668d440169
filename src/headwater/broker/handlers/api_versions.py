"""ApiVersions (18), versions 0-4.

v3 flexible (its answer's header never is) and the client's name; v4 tells features from 0. A version that is not known is
answered in version 0, with UNSUPPORTED_VERSION and the table, so that the client asks again in one that is.

Differs from Kafka: there are no features. What is not in the table is not served, and clients that read it never ask:
telemetry (71, 72) for instance, which librdkafka otherwise always sends.
"""

from __future__ import annotations

import re

from headwater.broker.apis import APIS
from headwater.broker.context import Context
from headwater.errors import InvalidRequest, UnsupportedVersion
from headwater.wire.messages.api_versions import ApiVersion, Request, Response

NAMED_FROM = 3
_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")  # KIP-511


async def handle(request: Request, context: Context) -> Response:
    if context.version >= NAMED_FROM and not (
        _NAME.fullmatch(request.client_software_name) and _NAME.fullmatch(request.client_software_version)
    ):
        return Response(error_code=InvalidRequest.code)
    return Response(api_keys=_table())


def unsupported() -> Response:
    """For a version from the future; encoded as version 0."""
    return Response(error_code=UnsupportedVersion.code, api_keys=_table())


def _table() -> list[ApiVersion]:
    return [ApiVersion(api_key=api.key, min_version=api.advertised_low, max_version=api.high) for api in APIS.values()]
