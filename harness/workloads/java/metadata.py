"""Metadata of topics and partitions in confluent-kafka's form, from the metadata of Java's
producer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Partitions:
    """A topic's partitions by number, as confluent-kafka's TopicMetadata has them."""

    partitions: range


@dataclass(frozen=True, slots=True)
class TopicsByName:
    """Topics by name, as confluent-kafka's ClusterMetadata has them."""

    topics: Mapping[str, Partitions]
