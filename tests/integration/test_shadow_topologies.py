"""The shadow mirror in every topology: a chain reads what the brokers in its middle really have, whatever happens to a hop."""

from __future__ import annotations

import pytest

from tests.shadows import Writer, all_end, assert_equal, drained, ends, make_topic, own_write, shadow, stray

pytestmark = pytest.mark.integration


def chain(deployment, **options):
    """Topic, writer on A, and both mirrors of A->B->C, started."""
    make_topic(deployment, "A")
    writer = Writer(deployment.clusters["A"].bootstrap)
    first, second = (shadow(deployment, link, **options) for link in ("A->B", "B->C"))
    first.start()
    second.start()
    return writer, first, second


@pytest.mark.linkflap(topology="A->B:3->C")
def test_a_chain_is_equal_under_flaps_and_goes_on_when_its_middle_is_promoted(linkflap_deployment):
    up = linkflap_deployment
    writer, first, second = chain(up)
    with writer.writing():
        for link in up.topology.links:
            up.links[link.name].cut()
            up.links[link.name].restore()
        first.crash()
        first.restart()
        up.clusters["B"].brokers[2].stop()
        up.clusters["B"].brokers[2].start()
        second.crash()
        second.restart()
    drained(first, second)
    assert ends(up, "A") == ends(up, "B") == ends(up, "C")
    for cluster in "BC":
        assert_equal(up, "A", cluster)
        assert not stray(up, cluster)
    writer.begin()
    drained(first)
    first.stop()
    promoted = first.promotion()
    assert own_write(up.clusters["B"].bootstrap) == promoted["A.records", 0] + 1  # after the marker of what was open
    all_end(up, "C", ends(up, "B"))
    assert_equal(up, "A", "C", below=promoted)
    assert_equal(up, "B", "C")
    second.stop()
    assert second.promotion() == ends(up, "C")
    assert own_write(up.clusters["C"].bootstrap) == promoted["A.records", 0] + 2
