"""Shadows between releases: each as source and as destination, and three in one chain."""

from __future__ import annotations

from itertools import pairwise

import pytest

from linkflap.harness.model.protocols import Deployment
from tests.shadows import (
    Writer,
    all_end,
    assert_equal,
    drained,
    ends,
    make_topic,
    own_write,
    shadow,
    stray,
)

pytestmark = pytest.mark.nightly


def mirrored(deployment: Deployment) -> None:
    """Mirrors through a kill and a failover over the first link; open transactions are aborted on
    B, and B is written to."""
    make_topic(deployment, "A")
    writer = Writer(deployment.clusters["A"].bootstrap)
    mirrors = [shadow(deployment, link.name) for link in deployment.topology.links]
    for mirror in mirrors:
        mirror.start()
    with writer.writing():
        for mirror in mirrors:
            mirror.crash()
            mirror.restart()
    writer.begin()
    drained(*mirrors)
    clusters = [link.destination for link in deployment.topology.links]
    for cluster in clusters:
        assert ends(deployment.clusters[cluster]) == ends(deployment.clusters["A"])
        assert (
            ends(deployment.clusters[cluster], "stable")
            == ends(deployment.clusters["A"], "stable")
            != ends(deployment.clusters["A"])
        )
        assert_equal(deployment, "A", cluster)
    mirrors[0].stop()
    promoted = mirrors[0].promotion()
    assert promoted == ends(deployment.clusters["A"])
    assert own_write(deployment.clusters["B"].bootstrap) == promoted["A.records", 0] + 1
    for earlier, later in pairwise(clusters):
        all_end(deployment, later, ends(deployment.clusters[earlier]))
        assert_equal(deployment, earlier, later)
    for cluster in clusters:
        assert ends(deployment.clusters[cluster], "stable") == ends(deployment.clusters["B"])
        assert not stray(deployment, cluster)


@pytest.mark.parametrize(
    "topology",
    [
        pytest.param(topology, marks=pytest.mark.linkflap(topology=topology))
        for topology in (
            "A@3.9.2->B",
            "A->B@3.9.2",
            "A@4.1.2->B",
            "A->B@4.1.2",
            "A@4.1.2->B@3.9.2",
            "A@3.9.2->B@4.1.2->C",
            "A->B@4.1.2->C@3.9.2",
        )
    ],
)
def test_releases_mirror_each_other(linkflap_deployment: Deployment, topology: str) -> None:
    mirrored(linkflap_deployment)
