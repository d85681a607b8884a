"""The shadow as a broker of the destination cluster: registers with the controller, sends
heartbeats, and changes ISRs.

KIP-631 (BrokerRegistration, BrokerHeartbeat), KIP-497 (AlterPartition), KIP-730
(AllocateProducerIds). Requests follow the active controller when it changes. While the shadow leads
a partition, real brokers are not in its ISR. So without the shadow the partition has no leader, and
is never writable.

AlterPartition needs a partition epoch, and no API that a shadow can use returns it. So
`change_isrs` guesses it: the error is INVALID_UPDATE_VERSION for a guess that is too low, and
NOT_CONTROLLER for that partition when it is too high. The right guess makes the change.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

from linkflap.harness.mirrors.shadow.destination.client import MetadataSnapshot
from linkflap.harness.mirrors.shadow.journal import Journal
from linkflap.harness.mirrors.shadow.partition import Partition
from linkflap.harness.mirrors.shadow.settings import Config
from linkflap.harness.model.errors import EnvironmentFailure, InputError
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.wire import messages
from linkflap.harness.wire.access import Unanswered
from linkflap.harness.wire.connection import AnyOf
from linkflap.harness.wire.messages import Error, Message
from linkflap.harness.wire.requests import by_topic

PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
"""The ids of Kafka's SecurityProtocol."""


def refused(config: Config, answer: Message | None) -> InputError | EnvironmentFailure:
    """The error for a refused registration, and how to fix it. No answer: no controller was
    reached."""
    link, me = config.link, config.broker_id
    if answer is None:
        where = ", ".join(config.controllers)
        return EnvironmentFailure(
            f"no controller of the destination of {link} answers at {where}; start that cluster"
        )
    if answer.error_code == Error.duplicate_broker_registration:
        return InputError(
            f"broker id {me} is in use on the destination of {link}; stop the other shadow that"
            " uses it"
        )
    what = f"the destination's controller refused the shadow of {link} ({answer.error_code.name})"
    if answer.error_code == Error.inconsistent_cluster_id:
        return InputError(
            f"{what}; its cluster id is not {config.cluster_id}: use the id of that cluster"
        )
    if answer.error_code == Error.unsupported_version:
        return InputError(
            f"{what}; a shadow needs a destination of Kafka 3.9 or later with that release's "
            "metadata.version"
        )
    return EnvironmentFailure(f"{what}; see the controller's log")


def features_request() -> Message:
    """ApiVersions: the shadow registers with the features that the controller supports."""
    return messages.request("api_versions", 4).ApiVersionsRequest(
        client_software_name="linkflap-shadow", client_software_version="1"
    )


def registration(config: Config, journal: Journal, features: Sequence[Message]) -> Message:
    """BrokerRegistration (KIP-631) of a shadow."""
    m = messages.request("broker_registration", 4)
    inner, clients = config.entries.inner, config.entries.clients
    return m.BrokerRegistrationRequest(
        broker_id=config.broker_id,
        cluster_id=config.cluster_id,
        incarnation_id=uuid.UUID(journal.notes.incarnation_id),
        listeners=tuple(
            m.Listener(
                name=name,
                host=config.advertised_hosts.get(name, config.host),
                port=port,
                security_protocol=PROTOCOLS[
                    (inner if name == config.followers else clients).protocol
                ],
            )
            for name, port in config.listeners.items()
        ),
        features=tuple(
            m.Feature(
                name=f.name,
                min_supported_version=f.min_version,
                max_supported_version=f.max_version,
            )
            for f in features
        ),
        rack=None,
        log_dirs=(uuid.UUID(journal.notes.directory_id),),
        previous_broker_epoch=-1,
    )


log = logging.getLogger(__name__)
BEAT_SECONDS: Final = 0.5
_HEARTBEAT: Final = 63
JOIN_SECONDS: Final = 12.0
"""Longer than the session of a shadow that died (broker.session.timeout.ms is 9 s by default)."""
_COMES_TRUE: Final = (Error.duplicate_broker_registration, Error.not_controller)
"""Errors that are retried: the broker id of a shadow that died is free once its session has
ended."""
_GONE: Final = (Error.stale_broker_epoch, Error.broker_id_not_registered)
_METADATA_SEEN: Final = 1 << 60
"""Heartbeats report how far a broker has read the metadata log. A shadow does not read it, and must
not delay others."""


class Membership:
    """One registration. `epoch` is the broker epoch, -1 before the first registration."""

    def __init__(self, config: Config, journal: Journal) -> None:
        self._config, self._journal = config, journal
        self._controllers = AnyOf(config.controllers)
        self._heart = AnyOf(config.controllers)
        self._want_fence = self._want_shut_down = False
        self.beating: asyncio.Task[None]
        """The heartbeats, started by `join`. Ends with the error that made them useless."""
        self._beat_lock = asyncio.Lock()
        self._beaten = 0.0
        self.longest_silence = 0.0
        """The longest time between two acknowledged heartbeats, in seconds."""
        self.epoch = -1
        self.fenced = True
        self.may_leave = False
        self._beats_in = 1
        self._cordoned = True

    async def join(self) -> None:
        """Registers, and becomes unfenced. Raises InputError for a broker id in use,
        EnvironmentFailure for any other refusal.

        Retries while a controller is being elected, or does not answer.
        """
        deadline = time.monotonic() + JOIN_SECONDS
        while (answer := await self._register()) is None or answer.error_code in _COMES_TRUE:
            if time.monotonic() > deadline:
                raise refused(self._config, answer)
            await asyncio.sleep(0.2)
        if answer.error_code != Error.none:
            raise refused(self._config, answer)
        self.epoch = answer.broker_epoch
        with contextlib.suppress(Unanswered):
            await self._beat()  # topics created next need an unfenced leader
        self.beating = asyncio.create_task(self._beats())

    async def _register(self) -> Message | None:
        """The controller's answer; None when it did not answer."""
        try:
            answer = await self._controllers.call_controller("api_versions", 4, features_request())
            if answer.error_code == Error.none:
                self._beats_in = min(
                    2, max(api.max_version for api in answer.api_keys if api.api_key == _HEARTBEAT)
                )
                body = registration(self._config, self._journal, answer.supported_features)
                return await self._controllers.call_controller(
                    "broker_registration", 4, body, within=10
                )
            return answer
        except Unanswered as error:
            log.warning("no registration: %s", error)
            return None

    async def _beats(self) -> None:
        """Raises EnvironmentFailure when another process has registered with this broker id."""
        while True:
            try:
                await self._beat()
            except Unanswered as error:
                log.warning("no heartbeat: %s", error)
            await asyncio.sleep(BEAT_SECONDS)

    async def _beat(self) -> None:
        async with self._beat_lock:
            directories = (uuid.UUID(self._journal.notes.directory_id),) if self._cordoned else ()
            body = messages.request("broker_heartbeat", self._beats_in).BrokerHeartbeatRequest(
                broker_id=self._config.broker_id,
                broker_epoch=self.epoch,
                current_metadata_offset=_METADATA_SEEN,
                want_fence=self._want_fence,
                want_shut_down=self._want_shut_down,
                **({"cordoned_log_dirs": directories} if self._beats_in >= 2 else {}),
            )
            answer = await self._heart.call_controller("broker_heartbeat", self._beats_in, body)
        if answer.error_code in _GONE:
            raise EnvironmentFailure(
                f"broker {self._config.broker_id} of the destination of {self._config.link} is no "
                f"longer this shadow ({answer.error_code.name}); stop the process that registered "
                "with its id, and start the mirror again"
            )
        if answer.error_code != Error.none:
            log.warning("heartbeat refused: %s", answer.error_code.name)
            return
        now = time.monotonic()
        self.longest_silence = max(self.longest_silence, now - (self._beaten or now))
        self._beaten = now
        if answer.is_fenced != self.fenced:
            log.info("%s", "fenced" if answer.is_fenced else "unfenced")
        self.fenced, self.may_leave = answer.is_fenced, answer.should_shut_down

    @contextlib.asynccontextmanager
    async def placeable(self) -> AsyncIterator[None]:
        """Within it, partitions may be assigned to the shadow. Otherwise its directory is cordoned
        (KIP-1066), where the controller supports that.

        Kafka 4.3 accepts explicit assignments to a cordoned broker, 4.4 refuses them.
        """
        try:
            await self._cordon(False)
            yield
        finally:
            await self._cordon(True)

    async def _cordon(self, wanted: bool) -> None:
        self._cordoned = wanted
        if self._beats_in >= 2:
            await self._beat()

    async def raise_epochs(self) -> None:
        """Raises the leader epoch of every partition that the shadow leads by 2: fences itself, and
        unfences itself again.

        No other broker can be elected meanwhile, because none is in an ISR. Raises Unanswered or
        TimeoutError; the caller has to retry.
        """
        try:
            for fence in (True, False):
                self._want_fence = fence
                async with asyncio.timeout(20):
                    await self._beat()
                    while self.fenced != fence:
                        await asyncio.sleep(0.05)
                        await self._beat()
        finally:
            # Always reset. After a failure during a controller change, the next heartbeat would
            # fence the shadow at the new controller. Nothing would unfence it again: a shadow that
            # leads nothing raises no epochs.
            self._want_fence = False

    async def alter(
        self,
        wanted: Mapping[TopicPartition, Sequence[int]],
        known: Mapping[TopicPartition, tuple[Message, int, int]],
    ) -> dict[TopicPartition, Message]:
        """Requests ISRs (partition -> brokers). `known`: partition -> (topic id, leader epoch,
        partition epoch). Returns the answers. Raises Unanswered."""
        m = messages.request("alter_partition", 3)
        topics = tuple(
            m.TopicData(
                topic_id=known[topic, numbers[0]][0],
                partitions=tuple(
                    m.PartitionData(
                        partition_index=number,
                        leader_epoch=known[topic, number][1],
                        new_isr_with_epochs=tuple(
                            m.BrokerState(broker_id=broker) for broker in wanted[topic, number]
                        ),
                        partition_epoch=known[topic, number][2],
                    )
                    for number in numbers
                ),
            )
            for topic, numbers in by_topic(wanted).items()
        )
        body = m.AlterPartitionRequest(
            broker_id=self._config.broker_id, broker_epoch=self.epoch, topics=topics
        )
        answer = await self._controllers.call_controller("alter_partition", 3, body, within=10)
        if answer.error_code != Error.none:
            raise Unanswered(
                f"the controller refused to alter partitions: {answer.error_code.name}"
            )
        names = {known[tp][0]: tp[0] for tp in wanted}
        return {
            (names[t.topic_id], p.partition_index): p for t in answer.topics for p in t.partitions
        }

    async def producer_block(self) -> tuple[int, int]:
        """Allocates a block of producer ids: (first id, how many). Raises Unanswered."""
        body = messages.request("allocate_producer_ids", 0).AllocateProducerIdsRequest(
            broker_id=self._config.broker_id, broker_epoch=self.epoch
        )
        answer = await self._controllers.call_controller("allocate_producer_ids", 0, body)
        if answer.error_code != Error.none:
            raise Unanswered(f"the controller allocated no producer ids: {answer.error_code.name}")
        return int(answer.producer_id_start), int(answer.producer_id_len)

    async def leave(self, *, within: float) -> None:
        """Controlled shutdown. Gives up after `within` seconds; then the broker session times
        out."""
        self._want_shut_down = True
        try:
            async with asyncio.timeout(within):
                while not self.may_leave:
                    await self._beat()
                    await asyncio.sleep(0.05)
        except (TimeoutError, Unanswered, EnvironmentFailure):
            log.warning("left without a controlled shutdown")
        self.close()

    def close(self) -> None:
        """Stops the heartbeats."""
        if self.epoch >= 0:
            self.beating.cancel()
        self._controllers.close()
        self._heart.close()


_MOST_GUESSES: Final = 64


async def change_isrs(
    membership: Membership, here: MetadataSnapshot, wanted: Mapping[Partition, Sequence[int]]
) -> None:
    """Requests these ISRs until each was accepted or refused; the caller checks the result. Raises
    Unanswered."""
    bounds = {partition: (0, -1) for partition in wanted}
    guesses = {
        partition: partition.partition_epoch
        for partition in wanted
        if partition.topic in here.topics
    }
    for _ in range(_MOST_GUESSES):
        if not guesses:
            return
        tps = {(p.topic, p.number): p for p in guesses}
        known = {tp: (here.topics[tp[0]].id, p.leader_epoch, guesses[p]) for tp, p in tps.items()}
        answers = await membership.alter({tp: wanted[p] for tp, p in tps.items()}, known)
        for tp, answer in answers.items():
            partition = tps[tp]
            following = _next_guess(answer, guesses[partition], *bounds[partition])
            if following is None:
                _settle(partition, answer, guesses.pop(partition))
            else:
                guesses[partition], *limits = following
                bounds[partition] = limits[0], limits[1]


def _next_guess(answer: Message, guess: int, low: int, high: int) -> tuple[int, int, int] | None:
    """The next guess and its bounds (`high` -1: none yet). None when the answer does not concern
    the partition epoch."""
    if answer.error_code == Error.invalid_update_version:
        low = guess + 1
    elif answer.error_code == Error.not_controller:
        high = guess
    else:
        return None
    return (max(2 * guess, low) if high < 0 else (low + high) // 2), low, high


def _settle(partition: Partition, answer: Message, guess: int) -> None:
    if answer.error_code == Error.none:
        partition.partition_epoch = int(answer.partition_epoch)
    elif answer.error_code == Error.new_leader_elected:
        log.info("%s is handed over", partition.name)
    else:
        log.info("%s: ISR not changed: %s", partition.name, answer.error_code.name)
        partition.partition_epoch = guess
