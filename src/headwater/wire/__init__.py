"""Kafka's wire protocol, as functions on bytes.

`messages/` holds one generated module per API (`make wire`): slotted classes with Kafka's field names in snake_case, and

    decode_request(view, version) -> Request         encode_response(response, version) -> list of parts
    decode_response(view, version) -> Response       encode_request(request, version) -> list of parts

Only `ProtocolError` comes out of decoding, whatever the bytes; what is allocated is bounded by what arrived.
Records are never copied: they are slices of the frame when read, and parts of their own when written, so that the broker
may put a file's slice in their place (`Gap`: anything with `.length`).
A field that a version does not have is not written, and has its default when read. A tagged struct that was not sent is
None. `framing` has lengths and headers. `consumer_protocol_*` is what group members tell each other through us.
"""
