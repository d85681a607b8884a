"""Eras: what promotions cut a log into."""

from histories import Log, promoted, view

from spark_verify.eras import FOREVER, Era, eras, lost_at


def test_the_home_cluster_is_native_throughout():
    assert eras(view([Log("A")], promotions=[promoted(3)]), "A") == (Era(cluster="A", origin="native", start=0, end=FOREVER),)


def test_a_destination_is_mirrored_until_it_is_promoted():
    assert eras(view([Log("B")]), "B") == (Era(cluster="B", origin="mirrored", start=0, end=FOREVER),)
    assert eras(view([Log("B")], promotions=[promoted(3)]), "B") == (
        Era(cluster="B", origin="mirrored", start=0, end=3),
        Era(cluster="B", origin="native", start=3, end=FOREVER),
    )


def test_only_a_forced_failover_gives_a_cluster_up():
    assert lost_at(view([], promotions=[promoted(3, kind="planned")]), "A") is None
    assert lost_at(view([], promotions=[promoted(3, at=7)]), "A") == 7
