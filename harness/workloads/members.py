"""The harness's view of a client: its cluster, its last report, and the totals of its predecessors
of the same name."""

from __future__ import annotations

from dataclasses import dataclass, field

from linkflap.harness.workloads.protocol import ClientState, Counts, Hosted


@dataclass(slots=True, kw_only=True)
class Member:
    """One client of a process. It keeps its name when it is restarted; `before` has the last
    reports of its dead incarnations."""

    name: str
    cluster: str
    paused: bool = False
    commanded: int = 0
    """The number of the last question before the last command: an older answer says nothing about
    obedience."""
    answered: int = 0
    state: ClientState = field(default_factory=lambda: ClientState(name="", cluster=""))
    before: Counts = field(default_factory=Counts)
    drained: dict[tuple[str, int], int] = field(default_factory=dict)
    """Where a reader, or its predecessor of the same name, was when it recorded that it is
    drained."""

    @property
    def hosted(self) -> Hosted:
        """How it begins if it is started now."""
        return Hosted(name=self.name, cluster=self.cluster, paused=self.paused)

    @property
    def counts(self) -> Counts:
        return self.before + self.state.counts

    @property
    def obeyed(self) -> bool:
        """Whether its last report is newer than its last command."""
        return self.answered > self.commanded

    @property
    def moved(self) -> bool:
        return self.obeyed and (self.state.moved or not self.state.alive)

    @property
    def settled(self) -> bool:
        return self.obeyed and self.state.settled

    @property
    def positions(self) -> dict[tuple[str, int], int]:
        """Where a reader is."""
        return {(topic, partition): at for topic, partition, at in self.state.positions}

    def take_answer(self, state: ClientState, number: int) -> None:
        """Takes in its answer to a question."""
        self.state = state
        self.answered = max(self.answered, number)
        self.drained.update({(topic, partition): at for topic, partition, at in state.drained})

    def died(self, answered: int) -> None:
        """Its process has ended: it has nothing in flight, and a successor of the same name may
        begin as it was commanded."""
        self.before += self.state.counts
        self.state = ClientState(name=self.name, cluster=self.cluster, alive=False)
        self.answered = answered
