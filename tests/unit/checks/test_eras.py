"""Eras: how promotions and reversals divide a log."""

from __future__ import annotations

from collections.abc import Sequence

from linkflap.spark_verify.facts.eras import FOREVER
from linkflap.spark_verify.facts.lineages import eras, history
from linkflap.spark_verify.facts.partition_facts import Promotion, Window
from linkflap.spark_verify.facts.view import PartitionView
from tests.unit.checks.histories import promoted, reversed_, view
from tests.unit.checks.logs import SECOND, Log


def eras_of(seen: PartitionView, cluster: str) -> list[tuple[str, str, str, int, int]]:
    return [
        (e.origin, e.owner, e.source, e.start, e.end) for e in eras(seen.partition_facts, cluster)
    ]


def kept(
    *promotions: Promotion, windows: Sequence[Window] = (), topology: str = "A->B"
) -> PartitionView:
    return view([], mirror_kind="shadow", promotions=promotions, windows=windows, topology=topology)


BACK = [promoted(3), promoted(7, kind="planned", source="B", cluster="A", at=700 * SECOND)]
AGAIN = promoted(9, at=900 * SECOND)


def test_the_home_cluster_is_native_throughout() -> None:
    seen = view([Log("A")], promotions=[promoted(3)])
    assert eras_of(seen, "A") == [("native", "A", "", 0, FOREVER)]


def test_a_destination_is_mirrored_until_it_is_promoted() -> None:
    assert eras_of(view([Log("B")]), "B") == [("mirrored", "A", "A", 0, FOREVER)]
    seen = view([Log("B")], promotions=[promoted(3)])
    assert eras_of(seen, "B") == [("mirrored", "A", "A", 0, 3), ("native", "B", "", 3, FOREVER)]


def test_a_cluster_that_was_given_up_follows_the_promoted_one() -> None:
    seen = kept(promoted(3), windows=[reversed_("A->B", at=600)])
    assert eras_of(seen, "A") == [("native", "A", "", 0, 3), ("mirrored", "B", "B", 3, FOREVER)]


def test_there_and_back() -> None:
    seen = kept(*BACK, windows=[reversed_("A->B", at=600)])
    assert eras_of(seen, "A") == [
        ("native", "A", "", 0, 3),
        ("mirrored", "B", "B", 3, 7),
        ("native", "A", "", 7, FOREVER),
    ]
    assert eras_of(seen, "B") == [("mirrored", "A", "A", 0, 3), ("native", "B", "", 3, FOREVER)]


def test_there_and_back_and_there_again() -> None:
    seen = kept(*BACK, AGAIN, windows=[reversed_("A->B", at=600), reversed_("B->A", at=800)])
    first = [("mirrored", "A", "A", 0, 3), ("native", "B", "", 3, 7), ("mirrored", "A", "A", 7, 9)]
    assert eras_of(seen, "B") == [*first, ("native", "B", "", 9, FOREVER)]


def test_generations_end_where_a_log_is_truncated() -> None:
    seen = kept(*BACK, AGAIN, windows=[reversed_("A->B", at=600), reversed_("B->A", at=800)])
    generations = history(seen.partition_facts).generations
    assert [
        (generation.truncated_to, generation.lost, generation.before, generation.last)
        for generation in generations["A"]
    ] == [
        (3, 500 * SECOND, "1-reverse-600", False),
        (FOREVER, 900 * SECOND, "", True),
    ]
    assert [
        (generation.truncated_to, generation.lost, generation.last)
        for generation in generations["B"]
    ] == [
        (7, None, False),
        (FOREVER, None, True),
    ]
    assert [(generation.began, generation.ended) for generation in generations["A"]] == [
        (0, 600 * SECOND),
        (601 * SECOND, FOREVER),
    ]


def test_mirrored_ranges_are_the_offsets_that_each_mirror_copied() -> None:
    seen = kept(*BACK, AGAIN, windows=[reversed_("A->B", at=600), reversed_("B->A", at=800)])
    crossed = [
        (c.source, c.destination, c.start, c.end, c.generation, c.source_generation)
        for c in history(seen.partition_facts).mirrored_ranges
    ]
    assert crossed == [("A", "B", 0, 3, 0, 0), ("B", "A", 3, 7, 1, 0), ("A", "B", 7, 9, 1, 1)]


def test_a_chain_continues_after_a_promoted_cluster() -> None:
    seen = kept(promoted(3), topology="A->B->C")
    assert eras_of(seen, "C") == [("mirrored", "A", "B", 0, 3), ("mirrored", "B", "B", 3, FOREVER)]
    seen = kept(
        promoted(3), promoted(5, source="B", cluster="C", at=800 * SECOND), topology="A->B->C"
    )
    assert eras_of(seen, "C") == [
        ("mirrored", "A", "B", 0, 3),
        ("mirrored", "B", "B", 3, 5),
        ("native", "C", "", 5, FOREVER),
    ]
    assert [
        (c.source, c.destination, c.end) for c in history(seen.partition_facts).mirrored_ranges
    ] == [
        ("A", "B", 3),
        ("B", "C", 5),
    ]


def test_offsets_of_a_mirror_that_moves_them_mean_nothing_further_down() -> None:
    seen = view([], promotions=[promoted(3)], topology="A->B->C")
    assert eras_of(seen, "C") == [("mirrored", "A", "B", 0, FOREVER)]


def test_a_cluster_that_follows_with_other_offsets_is_emptied_and_copied_again() -> None:
    turns = [reversed_("A->B", at=600), reversed_("B->A", at=800)]
    seen = view([], promotions=[*BACK, AGAIN], windows=turns)
    assert eras_of(seen, "A") == [("mirrored", "B", "B", 0, 7), ("native", "A", "", 7, FOREVER)]
    assert eras_of(seen, "B") == [("mirrored", "A", "A", 0, 9), ("native", "B", "", 9, FOREVER)]
    past = history(seen.partition_facts)
    assert [generation.truncated_to for generation in past.generations["A"]] == [0, FOREVER]
    assert [(e.origin, e.start, e.end) for e in past.generations["A"][0].eras] == [
        ("native", 0, FOREVER)
    ]
    crossed = [
        (c.source, c.destination, c.start, c.end, c.generation, c.source_generation)
        for c in past.mirrored_ranges
    ]
    assert crossed == [("A", "B", 0, 3, 0, 0), ("B", "A", 0, 7, 1, 0), ("A", "B", 0, 9, 1, 1)]


def test_a_reversal_of_a_link_that_was_not_failed_over_changes_nothing() -> None:
    assert eras_of(kept(windows=[reversed_("A->B", at=600)]), "A") == [
        ("native", "A", "", 0, FOREVER)
    ]


def test_only_a_forced_failover_gives_a_cluster_up() -> None:
    assert (
        history(kept(promoted(3, kind="planned")).partition_facts).generations["A"][0].lost is None
    )
    assert history(kept(promoted(3, at=7)).partition_facts).generations["A"][0].lost == 7
