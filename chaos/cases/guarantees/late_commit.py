"""KIP-98, and KIP-1163 on unmodified brokers: the commit of a transaction that was aborted by its
timeout is refused, however late it comes."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import one
from linkflap.chaos.cases.tools.logs import markers
from linkflap.chaos.cases.wire_transactions import WireTransactional
from linkflap.harness.model.wait import pause, until

TIMEOUT = 1.5
_NOT_FENCED = {"broker.session.timeout.ms": "90000"}
"""A suspended broker remains the leader: without a leader, 4.3 drops the coordinator's marker
(KAFKA-20734)."""


@case(
    "KIP-1163-late-commit",
    one(_NOT_FENCED | {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}),
    claim={"suspended": True},
    control={"suspended": False},
)
def late_commit(bench: Bench, *, suspended: bool) -> Observation:
    """Suspends the broker between the produce and the marker, longer than the transaction timeout,
    and resumes it."""
    topic = bench.topic()
    writer = WireTransactional(bench, timeout=TIMEOUT if suspended else 60.0)
    writer.add((topic, 0))
    written, _ = writer.write((topic, 0), b"record")
    if suspended:
        bench.broker().pause()
        pause(2 * TIMEOUT, lambda: False)
        bench.broker().resume()
        until(
            lambda: bool(markers(bench.log(topic))),
            within=WITHIN,
            what="the coordinator's abort",
            every=0.2,
        )
    answers: list[str] = []

    def answered() -> bool:
        answers.append(writer.wire.end_transaction(writer.id, writer.producer, commit=True))
        return answers[-1] not in (
            "not_coordinator",
            "coordinator_not_available",
            "coordinator_load_in_progress",
        )

    # the broker may have been fenced meanwhile
    until(answered, within=WITHIN, what="an answer to the commit", every=0.2)
    answer = answers[-1]
    until(lambda: bool(markers(bench.log(topic))), within=WITHIN, what="a marker", every=0.1)
    read = [value.decode() for _, value in bench.read(topic)]
    found = [one.words for one in markers(bench.log(topic))]
    facts = {"produce": written, "commit": answer, "markers": found, "read_committed": read}
    return Observation(shown=answer == "none" or bool(read), facts=facts)
