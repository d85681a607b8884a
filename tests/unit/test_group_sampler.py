"""When the committed offsets of groups are sampled."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

from linkflap.harness.capture.group_offsets import GroupSampler
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.rundir import RunWriter


class Asked(GroupSampler):
    """Counts the groups that it asks for."""

    def __init__(self) -> None:
        writer = SimpleNamespace(groups=lambda cluster: None)
        super().__init__("B", {}, ["relay"], cast(RunWriter, writer))
        self.asked: list[str] = []

    def _sample(self, group: str, partitions: Sequence[TopicPartition], within: float) -> None:
        self.asked.append(group)


def test_the_last_sample_of_a_run_is_taken_right_after_another() -> None:
    groups = Asked()
    groups.sample([("orders", 0)], within=1.0)
    groups.sample([("orders", 0)], within=1.0)
    assert groups.asked == ["relay"]
    groups.sample_next()
    groups.sample([("orders", 0)], within=1.0)
    assert groups.asked == ["relay", "relay"]
