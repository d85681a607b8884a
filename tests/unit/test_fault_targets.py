"""The names and targets of faults, parsed in one place."""

from __future__ import annotations

import pytest

from linkflap.harness.model.faults import FaultName, Target


@pytest.mark.parametrize(
    ("text", "source", "destination", "broker", "cluster", "entered", "back"),
    [
        ("A->B", "A", "B", 0, "", "A", "B->A"),
        ("us-east->eu", "us-east", "eu", 0, "", "us-east", "eu->us-east"),
        ("*->A", "", "A", 0, "", "A", ""),
        ("A/2", "A", "", 2, "A", "A", ""),
        ("A", "A", "", 0, "A", "A", ""),
        ("A/x", "A", "", 0, "A", "A", ""),
        ("A->", "", "", 0, "", "", ""),
        ("->B", "", "", 0, "", "", ""),
        ("A->B->C", "", "", 0, "", "", ""),
        ("", "", "", 0, "", "", ""),
    ],
)
def test_a_target_is_parsed(
    text: str, source: str, destination: str, broker: int, cluster: str, entered: str, back: str
) -> None:
    on = Target.parse(text)
    assert (on.source, on.destination, on.broker, on.cluster) == (
        source,
        destination,
        broker,
        cluster,
    )
    assert (on.entered, on.back, on.is_client_path) == (entered, back, text == "*->A")
    assert (on.link.name if on.link else "") == (text if back else "")


@pytest.mark.parametrize(
    ("text", "is_"),
    [
        ("failover-planned", {"fails_over"}),
        ("failover-forced", {"fails_over", "forced"}),
        ("mirror-reverse", {"of_mirror", "reverses"}),
        ("mirror-kill", {"of_mirror"}),
        ("link-cut", {"of_link"}),
        ("broker-kill", set()),
    ],
)
def test_a_faults_name_says_what_it_breaks(text: str, is_: set[str]) -> None:
    name = FaultName(text)
    assert {
        each
        for each in ("fails_over", "forced", "of_mirror", "reverses", "of_link")
        if getattr(name, each)
    } == is_
    assert str(name) == text
