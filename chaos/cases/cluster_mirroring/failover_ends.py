"""How a failover ends what was open on the mirrored log, as it was proposed in the threads, on the
shadow mirror (RS4).

Y writes first, X writes and stays open, then Y commits: the last stable offset is behind Y's
records and before Y's marker.
"""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import PAIR
from linkflap.chaos.cases.tools.logs import markers, records
from linkflap.chaos.cases.wire_transactions import WireTransactional

Y_RECORDS = 3


@case("RS4-truncate-once", PAIR, claim={"how": "truncate-once"}, control={"how": "abort"})
@case("RS4-truncate-stable", PAIR, claim={"how": "truncate-stable"}, control={"how": "abort"})
def failover_ends(bench: Bench, how: str) -> Observation:
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
