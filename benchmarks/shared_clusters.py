"""The cost of tests that share clusters, compared with tests that each start their own.

    python benchmarks/shared_clusters.py [--tests N] [--topology T] [--rounds N]

It measures wall and CPU seconds (user and system, of pytest with all its descendants) of a session
whose tests each create a topic, write to it and read it back. With `linkflap_shared`, the clusters
are proven clean after every test; with `linkflap_deployment`, each test starts clusters. Sessions
are interleaved and medians compared. Exits 1 if a test fails, or if sharing does not take less.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

from measuring import of_session

OWN, SHARED = "linkflap_deployment", "linkflap_shared"
TEST = """
import pytest
from confluent_kafka import Consumer, Producer


@pytest.mark.linkflap(topology={topology!r})
@pytest.mark.parametrize("number", range({tests}))
def test_what_is_written_is_read({fixture}, number):
    clusters = {fixture}.clusters
    if {fixture!r} == "linkflap_shared":
        topic = {fixture}.topic("A")
    else:
        topic = "A.orders"
        clusters["A"].create_topic(topic, replicas=min(3, len(clusters["A"].brokers)))
    producer = Producer({{"bootstrap.servers": clusters["A"].bootstrap}})
    for n in range(100):
        producer.produce(topic, str(n).encode())
    assert producer.flush(60) == 0
    settings = {{"bootstrap.servers": clusters["A"].bootstrap, "group.id": topic}}
    consumer = Consumer(settings | {{"auto.offset.reset": "earliest"}})
    consumer.subscribe([topic])
    assert len(consumer.consume(100, timeout=60)) == 100
    consumer.close()
"""


def cost(folder: Path, fixture: str, tests: int, topology: str) -> tuple[float, float]:
    """Wall and CPU seconds of one session."""
    file = folder / f"test_{fixture}.py"
    file.write_text(TEST.format(fixture=fixture, tests=tests, topology=topology))
    return of_session(folder, [str(file)])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tests", type=int, default=8)
    parser.add_argument("--topology", default="A->B")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    took: dict[str, list[tuple[float, float]]] = {OWN: [], SHARED: []}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "pytest.ini").write_text("[pytest]\n")
        for number in range(asked.rounds):
            for fixture in (OWN, SHARED) if number % 2 else (SHARED, OWN):
                took[fixture].append(cost(folder, fixture, asked.tests, asked.topology))
    middle = {
        name: [statistics.median(column) for column in zip(*rows, strict=True)]
        for name, rows in took.items()
    }
    for name in (OWN, SHARED):
        wall, cpu = middle[name]
        print(f"{asked.tests} tests on {asked.topology} with {name}: {wall:.1f} s, {cpu:.1f} CPU s")
    wall, cpu = (shared / own for shared, own in zip(middle[SHARED], middle[OWN], strict=True))
    load = os.getloadavg()[0]
    print(f"ratio {wall:.2f} of the time, {cpu:.2f} of the CPU time; load average {load:.1f}")
    sys.exit(not (wall < 1 and cpu < 1))


if __name__ == "__main__":
    main()
