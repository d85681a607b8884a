"""Leader epochs as a broker's cache has them: who diverges from whom, and where."""

from __future__ import annotations

from linkflap.harness.mirrors.shadow.partition import NONE, Lineage


def test_epochs_rise_and_an_old_one_changes_nothing() -> None:
    lineage = Lineage([(0, 0), (3, 10)])
    assert not lineage.begin(3, 20)
    assert not lineage.begin(1, 20)
    assert lineage.begin(5, 20)
    assert lineage.entries == [(0, 0), (3, 10), (5, 20)]
    assert [lineage.at(offset) for offset in (-1, 0, 9, 10, 19, 20, 99)] == [NONE, 0, 0, 3, 3, 5, 5]


def test_an_epoch_that_wrote_nothing_is_forgotten() -> None:
    lineage = Lineage([(0, 0), (3, 10)])
    lineage.begin(4, 10)
    assert lineage.entries == [(0, 0), (4, 10)]


def test_a_follower_that_agrees_gets_no_divergence() -> None:
    lineage = Lineage([(0, 0), (3, 10)])
    assert lineage.diverges(-1, 0, 15) is None  # its log is empty
    assert lineage.diverges(0, 10, 15) is None
    assert lineage.diverges(3, 15, 15) is None


def test_a_follower_with_more_of_an_epoch_is_truncated_to_its_end() -> None:
    lineage = Lineage([(0, 0), (3, 10)])
    assert lineage.diverges(0, 12, 15) == (0, 10)
    assert lineage.diverges(3, 17, 15) == (3, 15)


def test_an_epoch_that_is_not_known_is_answered_with_the_one_below() -> None:
    lineage = Lineage([(0, 0), (3, 10)])
    assert lineage.diverges(2, 12, 15) == (0, 10)
    assert lineage.diverges(7, 12, 15) == (3, 15)
    assert Lineage().diverges(7, 12, 0) == (7, 0)


def test_a_truncation_forgets_epochs_that_begin_after_it() -> None:
    lineage = Lineage([(0, 0), (3, 10), (5, 20)])
    lineage.truncate(10)
    assert lineage.entries == [(0, 0)]
    lineage.begin(6, 10)
    assert lineage.diverges(3, 12, 12) == (0, 10)
