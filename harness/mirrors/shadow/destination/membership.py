"""The shadow as a broker of the destination cluster: registers with the controller, sends
heartbeats, and changes ISRs.

KIP-631 (BrokerRegistration, BrokerHeartbeat), KIP-497 (AlterPartition), KIP-730
(AllocateProducerIds). Requests follow the active controller when it changes. While the shadow leads
a partition, real brokers are not in its ISR. So without the shadow the partition has no leader, and
is never writable.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

from linkflap.harness.mirrors.shadow.destination.registration import (
    features_request,
    refused,
    registration,
)
from linkflap.harness.mirrors.shadow.journal import Journal
from linkflap.harness.mirrors.shadow.settings import Config
from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.wire import messages
from linkflap.harness.wire.connection import AnyOf, Unanswered
from linkflap.harness.wire.messages import Error, Message

log = logging.getLogger(__name__)
BEAT_SECONDS: Final = 0.5
_CALL_SECONDS: Final = 2.0
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
            answer = await self._ask(self._controllers, "api_versions", 4, features_request())
            if answer.error_code == Error.none:
                self._beats_in = min(
                    2, max(api.max_version for api in answer.api_keys if api.api_key == _HEARTBEAT)
                )
                body = registration(self._config, self._journal, answer.supported_features)
                return await self._ask(self._controllers, "broker_registration", 4, body, within=10)
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
            answer = await self._ask(self._heart, "broker_heartbeat", self._beats_in, body)
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

    async def _ask(
        self, nodes: AnyOf, api: str, version: int, body: Message, *, within: float = _CALL_SECONDS
    ) -> Message:
        """Tries the controllers in turn until one is the active controller. Raises Unanswered."""
        for _ in range(3 * len(nodes.addresses)):
            answer = await nodes.call(api, version, body, within=within)
            if answer.error_code != Error.not_controller:
                return answer
            nodes.turn()
            await asyncio.sleep(0.05)
        raise Unanswered(f"none of {', '.join(nodes.addresses)} is the active controller")

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
        by_topic: dict[str, list[int]] = {}
        for topic, number in wanted:
            by_topic.setdefault(topic, []).append(number)
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
            for topic, numbers in by_topic.items()
        )
        body = m.AlterPartitionRequest(
            broker_id=self._config.broker_id, broker_epoch=self.epoch, topics=topics
        )
        answer = await self._ask(self._controllers, "alter_partition", 3, body, within=10)
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
        answer = await self._ask(self._controllers, "allocate_producer_ids", 0, body)
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
