"""KIP-98 and KIP-360: once a transactional id has a new producer, the old one can neither write nor
commit."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.tools.clients import ClientFailed
from linkflap.chaos.cases.wire_transactions import WireTransactional


@case("KIP-98-zombie", ONE, claim={"same_id": True}, control={"same_id": False})
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


@case("KIP-98-zombie-client", ONE, claim={"same_id": True}, control={"same_id": False})
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
