"""Headwater: a durable, Kafka-compatible log that comes with pip install."""
