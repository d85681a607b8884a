"""How a failover ends what was open on the mirrored log, as it was proposed in the threads, on the
shadow mirror (RS4).

Y writes first, X writes and stays open, then Y commits: the last stable offset is behind Y's
records and before Y's marker.
"""

from __future__ import annotations

from functools import partial

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import PAIR
from linkflap.chaos.cases.tools.logs import markers, records
from linkflap.chaos.cases.wire_transactions import WireTransactional

Y_RECORDS = 3


def _failed_over(bench: Bench, how: str) -> Observation:
    topic = bench.topic()
    mirror = bench.mirror("shadow", open_transactions=how)
    mirror.start()
    y, x = WireTransactional(bench, "Y"), WireTransactional(bench, "X")
    for writer, values in ((y, [b"of Y"] * Y_RECORDS), (x, [b"of X"])):
        writer.add((topic, 0))
        writer.write((topic, 0), *values)
    committed = y.end(commit=True)
    on_a = (bench.bound("stable", topic), bench.bound("high", topic))
    bench.drained(mirror)
    bench.led(topic, cluster="B")
    mirrored = bench.bound("high", topic, cluster="B")
    mirror.stop()
    bench.led(topic, cluster="B")
    stable, high = (
        bench.bound("stable", topic, cluster="B"),
        bench.bound("high", topic, cluster="B"),
    )
    log = bench.log(topic, cluster="B")
    facts = {
        "commit_on_A": committed,
        "A_stable_and_high": list(on_a),
        "mirrored_before_the_failover": mirrored,
        "B_stable_and_high": [stable, high],
        "B_records": len(records(log)),
        "B_markers": [one.words for one in markers(log)],
        "B_read_committed": len(bench.read(topic, cluster="B")),
    }
    return Observation(
        shown=committed == "none" and facts["B_read_committed"] != Y_RECORDS, facts=facts
    )


def _case(name: str, how: str, title: str, claim: str, reproduced: str) -> Case:
    return Case(
        name=name,
        title=title,
        kind="proposal",
        claim_text=claim,
        sources=(
            (
                "KIP-1279 discussion, RS4 (Rajini Sivaram): LSO or high watermark, and how "
                "truncation works"
            ),
            "KIP-98",
        ),
        expected=(Expected(shows=True, since="3.9.1", basis="runs"),),
        schedule=(
            "1. Y writes; 2. X writes and stays open; 3. Y commits; 4. all is mirrored; 5. failover"
        ),
        reproduced=reproduced,
        control_text=(
            "open transactions end by ABORT markers (KIP-1279 since May 2026): Y's records are "
            "read, X's are aborted"
        ),
        refuted="Y's records committed on the destination after the failover",
        topology=PAIR,
        claim=partial(_failed_over, how=how),
        control=partial(_failed_over, how="abort"),
        clients=("wire",),
        oldest="3.9.1",
        apart=True,
    )


CASES = [
    _case(
        "RS4-truncate-once",
        "truncate-once",
        "Truncating to the last stable offset once reopens a committed transaction, which nobody "
        "can end",
        "A truncation to the LSO takes Y's COMMIT marker and leaves Y's records: open for ever on "
        "the destination, LSO stuck.",
        "Y's records are in the destination's log without a marker, LSO < high watermark, "
        "read_committed gets none of them",
    ),
    _case(
        "RS4-truncate-stable",
        "truncate-stable",
        "Truncating until nothing is open takes a transaction that was committed and mirrored",
        "Truncating until no transaction is open removes Y's records, which were acknowledged, "
        "committed and mirrored.",
        "the destination has none of Y's records, all of which it had before the failover",
    ),
]
