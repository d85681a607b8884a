"""Kafka's own Java clients, driven through `harness.jvm`, with the part of confluent-kafka's
interface that workloads use."""
