"""Faults of programs' requests to brokers, and of the answers. The recorder of the cluster applies
them to requests and answers that pass through it (`harness.model.interference`).

A client's history has the answers that the client got. No fault gives an answer that a real broker
could not give.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from msgspec import structs

from linkflap.chaos.faults.base import FaultBase, number, settings, watch
from linkflap.chaos.faults.clients import clients_there
from linkflap.chaos.faults.clusters import older
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.interference import (
    API_VERSIONS,
    APIS,
    ERRORS,
    HIGHEST,
    LOWEST,
    OF_TRANSACTIONS,
    REPEATABLE,
    WITH_PARTITIONS,
    Does,
    Interference,
    Requests,
    legal_errors,
)
from linkflap.harness.model.option import OptionAbout
from linkflap.harness.model.protocols import Bite, FaultWorld, WireRecorder
from linkflap.harness.model.scenario import (
    FaultSpec,
    Option,
    Scenario,
    clusters_of,
    through_recorders,
)
from linkflap.harness.model.topology import ANY_NAME
from linkflap.harness.runtimes.distribution.kafka import released

_MOST: Final = 1 << 30
_CLIENT: Final = OptionAbout(
    default="",
    takes="a client.id",
    about="client.id whose requests are affected (left out: all programs)",
)
_CARRIED_OUT: Final = OptionAbout(
    default=True, about="whether the broker gets the request; false: it does not"
)


def _chosen(*apis: str, about: str) -> Mapping[str, OptionAbout]:
    """The options that say which requests a fault chooses."""
    return {
        "api": OptionAbout.one_of(*apis, about=about),
        "count": OptionAbout(
            default=1, low=1, high=_MOST, about="number of requests that are affected"
        ),
        "first": OptionAbout(
            default=1,
            low=1,
            high=_MOST,
            about="number of the first request that is affected: 3 lets two pass",
        ),
        "client": _CLIENT,
        "topic": OptionAbout(
            default="",
            takes="a topic's full name, as A.orders",
            about="only requests that name this topic (left out: any)",
        ),
        "partition": OptionAbout(
            default=-1,
            low=-1,
            high=_MOST,
            about="only requests that name this partition of it; -1: any",
        ),
        "transactional_id": OptionAbout(
            default="",
            takes="a transactional id",
            about="only requests that name this transactional id (left out: any)",
        ),
    }


def there_are_recorded(cluster: str, scenario: Scenario) -> str | None:
    """None if the scenario has clients on the cluster that connect through a recorder; otherwise
    the reason."""
    recorded = [w for w in scenario.workloads if through_recorders(w)]
    there = any(cluster in clusters_of(w, scenario) for w in recorded)
    return (
        None
        if there
        else (
            'no recorded program (record = "wire") connects to it, nor a workload with via = "wire"'
        )
    )


class _OnTheWire(FaultBase):
    """A fault that a recorder applies. `shows`: the effect that the recorder counts, as a text."""

    does: ClassVar[Does]
    shows: ClassVar[str]

    def __init__(self, spec: FaultSpec, world: FaultWorld) -> None:
        """Raises InputError, also for options that contradict each other."""
        super().__init__(spec, world)
        self._before = 0
        if reason := self.against(self._values):
            raise InputError(f"fault {spec.id!r} ({spec.fault}): {reason}")

    reason = staticmethod(clients_there)

    @classmethod
    def lacks(cls, spec: FaultSpec, scenario: Scenario) -> str | None:
        values = settings(spec, cls.options)
        for workload in scenario.workloads:
            names = (*workload.reads, *workload.writes)
            if values.get("topic") in names and ANY_NAME not in names:
                full = f"{workload.home}.{values['topic']}"
                return (
                    f"the topic {values['topic']!r} has its home in its name there; name it "
                    f"{full!r}"
                )
        return cls.against(values) or there_are_recorded(spec.target, scenario)

    @classmethod
    def against(cls, values: Mapping[str, Option]) -> str | None:
        """Why these options contradict each other; None if they do not."""
        api, topic = str(values["api"]), str(values["topic"])
        if topic and api not in WITH_PARTITIONS:
            allowed = _listed(WITH_PARTITIONS)
            return f"{api} requests name no topic; leave topic out, or choose {allowed}"
        if values["transactional_id"] and api not in OF_TRANSACTIONS:
            allowed = _listed(OF_TRANSACTIONS)
            return (
                f"{api} requests name no transactional id; leave transactional_id out, or choose "
                f"{allowed}"
            )
        if number(values, "partition") >= 0 and not topic:
            return "partition needs a topic; name the topic, or leave partition out"
        return None

    @property
    def _recorder(self) -> WireRecorder:
        recorders = self._world.deployment.recorders
        if self._spec.target not in recorders:
            raise InputError(
                f"fault {self._spec.id!r} ({self._spec.fault}): nothing records the programs at "
                f'{self._spec.target}; give one record = "wire"'
            )
        return recorders[self._spec.target]

    @property
    def _what(self) -> Interference:
        values = self._values
        return Interference(
            does=self.does,
            api=APIS[str(values["api"])],
            count=int(values["count"]),
            first=int(values["first"]),
            carried_out=bool(values.get("carried_out", True)),
            client=str(values["client"]),
            topic=str(values["topic"]),
            partition=int(values["partition"]),
            transactional_id=str(values["transactional_id"]),
        )

    @property
    def _shown(self) -> str:
        return self.shows.format(**self._values)

    @property
    def _requests(self) -> Requests:
        return Requests(api=str(self._values["api"]))

    def inject(self) -> None:
        self._before = self._recorder.requested(self._requests)
        self._recorder.interfere(self._spec.id, self._what)

    def bite(self) -> Bite:
        return watch(self._world, self._shown, "1 or more", self._measure)

    def _measure(self) -> tuple[bool, object]:
        done = self._recorder.interfered(self._spec.id)
        return done > 0, done or self._none

    @property
    def _none(self) -> str:
        came = self._recorder.requested(self._requests) - self._before
        return f"0 of {came} that came"

    def heal(self) -> Sequence[str]:
        self._recorder.interfere(self._spec.id, None)
        return [f"{self._shown}: {self._recorder.interfered(self._spec.id)}, and no more are"]


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


class ProgramUnanswered(_OnTheWire):
    """Drops answers to requests of programs recorded on the wire, and closes their connections.

    Breaks    the client's knowledge: the broker has carried the request out, and its client never
              learns of it. With `carried_out = false` the broker never gets the request: for the
              client both are the same.
    Bite      an answer was dropped, or a connection closed: the recorder of the cluster counts
              them.
    Heal      the recorder reports that it drops no more.
    """

    does = "unanswered"
    shows = "{api} unanswered"
    options: ClassVar[Mapping[str, OptionAbout]] = {
        **_chosen(*APIS, about="requests whose answers are dropped"),
        "carried_out": _CARRIED_OUT,
    }


class ProgramDelayed(_OnTheWire):
    """Delays answers to requests of programs recorded on the wire, and everything behind them on
    the same connections.

    Breaks    the client's timing: its request timeout may pass, and it sends the request again.
              With `carried_out = false` the request itself is held back before it is forwarded, so
              that a fault with `during:` begins between the two.
    Bite      an answer or request was held back: the recorder of the cluster counts them.
    Heal      the recorder reports that it delays no more. Answers and requests that it still holds
              pass when their delay is over.
    """

    does = "delayed"
    shows = "{api} delayed by {seconds:g} s"
    options: ClassVar[Mapping[str, OptionAbout]] = {
        **_chosen(*APIS, about="requests that are delayed"),
        "carried_out": _CARRIED_OUT,
        "seconds": OptionAbout(default=1.0, low=0.001, high=600.0, about="for how long"),
    }

    @property
    def _what(self) -> Interference:
        return structs.replace(super()._what, seconds=number(self._values, "seconds"))


class ProgramRefused(_OnTheWire):
    """Answers requests of programs recorded on the wire with an error.

    Breaks    the client's knowledge: the broker has carried the request out, and the client gets an
              error that brokers can give after that. With `carried_out = false` the broker never
              gets the request, and the error is one that brokers give before that.
    Bite      a client got the error: the recorder of the cluster counts them.
    Heal      the recorder reports that it refuses no more.

    For requests that change nothing at a broker (Fetch, ListOffsets, OffsetFetch, …), the answer is
    replaced; of a Fetch that of each partition. An InitProducerId without a transactional id, and a
    Produce with acks=0, are not refused.
    """

    does = "refused"
    shows = "{api} refused"
    options: ClassVar[Mapping[str, OptionAbout]] = {
        **_chosen(*ERRORS, about="requests that are refused"),
        "carried_out": _CARRIED_OUT,
        "error": OptionAbout(
            default="",
            takes="an error of the API, as NOT_LEADER_OR_FOLLOWER",
            about="the error that the client gets (left out: the commonest one)",
        ),
    }

    @classmethod
    def against(cls, values: Mapping[str, Option]) -> str | None:
        api, error = str(values["api"]), str(values["error"])
        legal = legal_errors(api, carried_out=bool(values["carried_out"]))
        if not legal:
            return f"{api} changes nothing at a broker; leave carried_out out"
        if error and error not in legal:
            stage = "" if values["carried_out"] else " not"
            return (
                f"brokers do not answer {error} to {api} that they have{stage} carried out; choose "
                f"{', '.join(legal)}"
            )
        return super().against(values)

    @property
    def _what(self) -> Interference:
        what, api = super()._what, str(self._values["api"])
        commonest = legal_errors(api, carried_out=what.carried_out)[0]
        return structs.replace(what, error=str(self._values["error"]) or commonest)


class ProgramRepeated(_OnTheWire):
    """Sends requests of programs recorded on the wire twice. The client gets the first answer.

    Does      the same as a client that retries before the answer comes: brokers must detect that
              they have already carried the request out. Only requests for which Kafka promises that
              are repeated; a Produce without a producer id is not.
    Bite      a broker answered a second time: the recorder of the cluster counts them.
    Heal      the recorder reports that it repeats no more.
    """

    does = "repeated"
    shows = "{api} sent twice and answered twice"
    options: ClassVar[Mapping[str, OptionAbout]] = _chosen(
        *REPEATABLE, about="requests that are sent twice"
    )


class ProgramThrottled(_OnTheWire):
    """Asks programs recorded on the wire to send nothing for a while, like a broker whose quota
    they have exceeded (KIP-219).

    Breaks    the client's timing: the answer to its request comes at once, with a throttle time.
              Until that is over, nothing that it sends on this connection passes.
    Bite      a client got such an answer: the recorder of the cluster counts them.
    Heal      the recorder reports that it throttles no more. Requests that it still holds pass when
              their time is over.
    """

    does = "throttled"
    shows = "{api} throttled for {seconds:g} s"
    options: ClassVar[Mapping[str, OptionAbout]] = {
        **_chosen(*APIS, about="requests whose answers are throttled"),
        "seconds": OptionAbout(default=1.0, low=0.001, high=600.0, about="the throttle time"),
    }

    @property
    def _what(self) -> Interference:
        return structs.replace(super()._what, seconds=number(self._values, "seconds"))


class ProgramDowngraded(_OnTheWire):
    """Withholds versions of an API from programs recorded on the wire, like brokers of an older
    release.

    Breaks    the client's choice of versions: the cluster's brokers offer no higher version of the
              API. At the beginning and at the end the connections of all programs are closed, as in
              a rolling upgrade.
    Bite      a client got a lower offer than the broker's: the recorder of the cluster counts them.
    Heal      the recorder reports that it withholds nothing.
    """

    does = "downgraded"
    shows = "{api} offered up to version {version:g}"
    options: ClassVar[Mapping[str, OptionAbout]] = {
        "api": OptionAbout.one_of(*LOWEST, about="the API whose versions are withheld"),
        "version": OptionAbout(
            default=12, high=100, about="the highest version that is offered still"
        ),
        "client": _CLIENT,
    }

    @classmethod
    def lacks(cls, spec: FaultSpec, scenario: Scenario) -> str | None:
        values = settings(spec, cls.options)
        api, cluster = str(values["api"]), scenario.topology.cluster(spec.target)
        upgraded = any(
            other.fault == "rolling-upgrade" and other.target == spec.target
            for other in scenario.schedule
        )
        offered = [v for since, v in HIGHEST[api].items() if not older(cluster.kafka, since)][-1]
        if (
            cluster.kafka in released()
            and not (cluster.bootstrap or upgraded)
            and number(values, "version") >= offered
        ):
            lower = ", ".join(map(str, range(LOWEST[api], offered)))
            return (
                f"brokers of Kafka {cluster.kafka} offer {api} up to {offered}, so that no version "
                f"is withheld; give {lower or 'another api'}"
            )
        return super().lacks(spec, scenario)

    @classmethod
    def against(cls, values: Mapping[str, Option]) -> str | None:
        api, version = str(values["api"]), number(values, "version")
        if version < LOWEST[api]:
            return (
                f"brokers of the cluster's metadata.version offer {api} up to {LOWEST[api]} at "
                "least; give that version or a higher one"
            )
        return None

    @property
    def _none(self) -> str:
        return "0: no such program connected, or brokers offer no higher version"

    @property
    def _what(self) -> Interference:
        return Interference(
            does=self.does,
            api=API_VERSIONS,
            count=_MOST,
            client=str(self._values["client"]),
            offers=APIS[str(self._values["api"])],
            version=int(self._values["version"]),
        )
