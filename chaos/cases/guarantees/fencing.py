"""KIP-98 and KIP-360: once a transactional id has a new producer, the old one can neither write nor
commit."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.tools.clients import ClientFailed
from linkflap.chaos.cases.wire_transactions import WireTransactional


def _zombie(bench: Bench, *, same_id: bool) -> Observation:
    """A new producer takes the transactional id of the old one in mid-transaction, or has another
    id."""
    topic = bench.topic()
    old = WireTransactional(bench, "writer")
    old.add((topic, 0))
    old.write((topic, 0), b"before")
    new = WireTransactional(bench, "writer" if same_id else "other")
    written = old.write((topic, 0), b"of the zombie")
    ended = old.end(commit=True)
    new.add((topic, 0))
    new.write((topic, 0), b"of the new one")
    new.end(commit=True)
    read = [value.decode() for _, value in bench.read(topic)]
    facts = {"produce_of_the_old": written[0], "commit_of_the_old": ended, "read_committed": read}
    return Observation(shown="of the zombie" in read or "before" in read, facts=facts)


def _clients(bench: Bench, *, same_id: bool) -> Observation:
    """The same with two real clients."""
    topic = bench.topic()
    old = bench.transactional("writer")
    old.begin()
    old.send(topic, b"of the zombie")
    old.flush()
    new = bench.transactional("writer" if same_id else "other")
    try:
        old.commit()
        ended = "none"
    except ClientFailed as error:
        ended = error.name
    new.begin()
    new.send(topic, b"of the new one")
    new.commit()
    read = [value.decode() for _, value in bench.read(topic)]
    return Observation(
        shown="of the zombie" in read, facts={"commit_of_the_old": ended, "read_committed": read}
    )


_SCHEDULE = (
    "1. a producer writes in a transaction; 2. a second one takes its transactional id; 3. the "
    "first writes on and commits"
)

CASES = [
    Case(
        name="KIP-98-zombie",
        title="A fenced producer's records are never committed, whatever it sends",
        kind="guarantee",
        claim_text=(
            "Anomaly: records of a producer are committed after another one has taken over its "
            "transactional id."
        ),
        sources=("KIP-98, zombie fencing", "KIP-360; KIP-890"),
        expected=(Expected(shows=False, basis="runs"),),
        schedule=_SCHEDULE,
        reproduced="read_committed gets a record of the old producer",
        control_text=(
            "the second producer has another transactional id: the first one's records are "
            "committed"
        ),
        refuted="a record of the old producer in read_committed",
        topology=ONE,
        claim=lambda bench: _zombie(bench, same_id=True),
        control=lambda bench: _zombie(bench, same_id=False),
        control_shows=True,
        clients=("wire",),
        protocols=("", "V1"),
    ),
    Case(
        name="KIP-98-zombie-client",
        title="A client whose transactional id was taken over cannot commit",
        kind="guarantee",
        claim_text=(
            "Anomaly: the commit of a client is accepted after another client has taken over its "
            "transactional id."
        ),
        sources=("KIP-98, zombie fencing", "KIP-890, client side"),
        expected=(Expected(shows=False, basis="runs"),),
        schedule=_SCHEDULE,
        reproduced="read_committed gets the old client's record",
        control_text=(
            "the second client has another transactional id: the first one's record is committed"
        ),
        refuted="the old client's record in read_committed",
        topology=ONE,
        claim=lambda bench: _clients(bench, same_id=True),
        control=lambda bench: _clients(bench, same_id=False),
        control_shows=True,
        clients=("librdkafka", "java"),
        protocols=("", "V1"),
    ),
]
