"""Kafka's own Java clients behind the part of confluent-kafka's interface that workloads use,
driven through `harness.jvm`."""
