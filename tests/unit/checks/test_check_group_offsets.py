"""group-offsets: the smallest histories."""

import pytest
from histories import SECOND, Log, Rejected, assert_accepted, assert_rejected, findings, poll, promoted, view

NAME = "group-offsets"
AFTER = 600 * SECOND


def moved(committed: int, *got: tuple[int, int], before: tuple[tuple[int, int], ...] = ((0, 1),), cluster_at: int = AFTER):
    return [
        poll(*before, group="g"),
        poll(kind="commit", group="g", position=committed, at=200 * SECOND),
        poll(*got, cluster="B", group="g", at=cluster_at),
    ]


LOGS = [Log("A").data(1, 2, 3), Log("B").data(1, 2, 3)]
FAILED_OVER = [promoted(3)]
ACCEPTED = {
    "goes on where it was": (view(LOGS, promotions=FAILED_OVER, reads=moved(1, (1, 2), (2, 3))), {"B/mirrored": 3}),
    "read on both sides all along": (view(LOGS, promotions=FAILED_OVER, reads=moved(2, (0, 1), cluster_at=SECOND)), {}),
    "no failover": (view(LOGS, reads=moved(2, (0, 1))), {}),
    "no group sync": (
        view(LOGS, promotions=FAILED_OVER, reads=moved(2, (0, 1)), mirror={"groups": ""}),
        {},
    ),
    "got on the source, not committed there": (
        view(LOGS, promotions=FAILED_OVER, reads=moved(1, (2, 3), before=((0, 1), (1, 2)))),
        {"B/mirrored": 3},
    ),
}
REJECTS = {
    "group-skip": Rejected(view=view(LOGS, promotions=FAILED_OVER, reads=moved(1, (2, 3))), cluster="B", offset=1),
    "group-replay": Rejected(
        view=view(LOGS, promotions=FAILED_OVER, reads=moved(2, (0, 1), (1, 2), (2, 3))), cluster="B", offset=0
    ),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepts(case):
    seen, counted = ACCEPTED[case]
    assert_accepted(NAME, seen, counted=counted)


@pytest.mark.parametrize("kind", REJECTS)
def test_rejects(kind):
    assert_rejected(NAME, kind, REJECTS[kind])


def test_a_replay_comes_with_its_bound():
    (found,) = findings(NAME, REJECTS["group-replay"].view)
    assert (found.evidence["records"], found.evidence["bound"]) == (2, 103)
