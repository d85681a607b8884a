"""When a client goes on, as the recorder sees it: by what it has done, or by its positions."""

from __future__ import annotations

from linkflap.harness.model.history import Watermark
from linkflap.harness.model.topology import TopicPartition
from linkflap.recording.liveness import _Client

ONE, TWO = ("A.t", 0), ("A.t", 1)


def end(tp: TopicPartition, offset: int) -> Watermark:
    return Watermark(
        time=1, returned=2, cluster="A", leader=3, topic=tp[0], partition=tp[1], log_start=0,
        last_stable=offset, high_watermark=offset,
    )  # fmt: skip


class Consumer:
    """A consumer's positions and the ends of its partitions, which tests move."""

    def __init__(self) -> None:
        self.at = {ONE: 0, TWO: 5}
        self.ends = {ONE: end(ONE, 5), TWO: end(TWO, 5)}
        self.client = _Client(
            name="c",
            within=1.0,
            cluster=lambda: "A",
            positions=lambda: dict(self.at),
            ends=lambda: dict(self.ends),
        )
        self.client.begin()


def test_a_producer_goes_on_once_it_has_done_more() -> None:
    done = [3]
    client = _Client(name="p", within=1.0, cluster=lambda: "A", done=lambda: done[0])
    client.begin()
    assert not client.look()
    done[0] = 4
    assert client.look()


def test_a_consumer_has_to_move_in_every_partition_that_it_has_not_read_to_the_end() -> None:
    consumer = Consumer()
    (waited,) = consumer.client.waits_for()
    assert (waited.topic, waited.partition, waited.position, waited.end) == ("A.t", 0, 0, 5)
    assert waited.leader == 3
    consumer.ends[TWO] = end(TWO, 9)
    consumer.at[ONE] = 1
    assert not consumer.client.look()
    consumer.at[TWO] = 6
    assert consumer.client.look()


def test_a_slow_consumer_works_on_what_was_there_first() -> None:
    consumer = Consumer()
    consumer.ends[TWO] = end(TWO, 9)
    consumer.client.begin()
    assert not consumer.client.works()
    consumer.at[TWO] = 6
    assert consumer.client.works()
    consumer.at[TWO] = 9
    assert not consumer.client.works()
    assert not consumer.client.look()
