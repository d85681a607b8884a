"""Kafka's protocol over sockets: what the harness asks brokers."""
