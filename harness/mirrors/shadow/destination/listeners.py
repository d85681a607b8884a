"""The shadow's listeners: one for the destination's brokers, and in visible mode one for each
listener of clients; and their answers: redirects to followers, and refusals.

On a secured cluster they use TLS. A client authenticates with a real broker: the shadow relays
these requests like most others. Only when it asks for log ends does the shadow use its own
credentials.

Clients see a read-only mirror topic. Their fetches are redirected to a follower (KIP-392, preferred
read replica), which answers with its own high watermark, LSO and aborted transactions. Log ends
come from that follower too. Produce requests are refused with POLICY_VIOLATION. All other requests
are relayed to a real broker on the same listener.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import socket
import ssl
from datetime import timedelta
from typing import Final

from linkflap.harness.mirrors.shadow.destination.client import follower_bounds
from linkflap.harness.mirrors.shadow.destination.leader import (
    EPOCH_ENDS,
    FETCH,
    LATEST,
    LIST_OFFSETS,
    Leader,
    refused_partition,
)
from linkflap.harness.mirrors.shadow.partition import MirroredLog, Partition
from linkflap.harness.model.errors import EnvironmentFailure, InputError
from linkflap.harness.wire import messages
from linkflap.harness.wire.access import Unanswered
from linkflap.harness.wire.connection import Connections
from linkflap.harness.wire.messages import Error, Malformed, Message, Pieces
from linkflap.harness.wire.requests import DEBUGGING
from linkflap.harness.wire.stream import Stream

NOTHING: Final = timedelta()


_VERSIONS_V0: Final = 0


NO_OFFSET: Final = {"error_code": Error.leader_not_available, "timestamp": -1, "offset": -1}


def pass_on(
    m: Message, version: int, asked: Message, partition: Partition | None, follower: int
) -> Message:
    """Redirects a fetch to a follower. A fetch from a deleted offset is refused here.

    A client that a follower refuses returns to the leader (KIP-392). Redirected again, it would
    alternate between the two for ever.
    """
    if partition is not None and 0 <= int(asked.fetch_offset) < min(
        partition.start, partition.high_watermark
    ):
        return refused_partition(m, asked, Error.offset_out_of_range)
    if partition is None or follower < 0 or version < 11:
        return refused_partition(m, asked, Error.not_leader_or_follower)
    return m.PartitionData(
        partition_index=asked.partition,
        error_code=Error.none,
        high_watermark=partition.high_watermark,
        log_start_offset=partition.start,
        aborted_transactions=None,
        preferred_read_replica=follower,
        records=b"",
    )


def ended_of(
    r: Message, version: int, asked: Message, partition: Partition, end: int | None
) -> Message:
    """The log end that a follower reported, with the shadow's leader epoch. Without an offset, the
    client retries.

    There is no offset when `end` is None, or when the follower has more than the mirrored log. It
    has then become the leader, in a higher epoch, and its own records would get the shadow's epoch.
    Only before a takeover has truncated it may a follower have more.
    """
    handed_over = end is not None and 0 <= partition.end < end and not partition.taking
    if end is None or handed_over:
        return r.ListOffsetsPartitionResponse(**NO_OFFSET, partition_index=asked.partition_index)
    epoch = {"leader_epoch": partition.leader_epoch} if version >= 4 else {}
    return r.ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        error_code=Error.none,
        timestamp=-1,
        offset=end,
        **epoch,
    )


def refuse_produce(version: int, correlation: int, frame: memoryview) -> Pieces:
    """Refuses with POLICY_VIOLATION, which clients report and do not retry. A request with acks=0
    gets no answer."""
    request = messages.decode_request("produce", version, frame)
    if request.acks == 0:
        return Pieces()
    m = messages.response("produce", version)
    why = {"record_errors": (), "error_message": "a mirror topic is read-only until its failover"}
    topics = tuple(
        m.TopicProduceResponse(
            **({"topic_id": t.topic_id} if version >= 13 else {"name": t.name}),
            partition_responses=tuple(
                m.PartitionProduceResponse(
                    index=p.index,
                    error_code=Error.policy_violation,
                    base_offset=-1,
                    **(why if version >= 8 else {}),
                )
                for p in t.partition_data
            ),
        )
        for t in request.topic_data
    )
    body = m.ProduceResponse(responses=topics, throttle_time=NOTHING)
    return messages.encode_response("produce", version, correlation, body)


def without_api(frame: memoryview, version: int, key: int) -> Pieces:
    """An ApiVersions answer without one API. Without OffsetForLeaderEpoch, clients do not validate
    positions by leader epoch.

    A broker answers a version that it does not know in version 0 (KIP-511).
    """
    correlation = int.from_bytes(frame[:4], "big", signed=True)
    if int.from_bytes(frame[4:6], "big", signed=True) != Error.none.value:
        version = _VERSIONS_V0
    body = messages.decode_response("api_versions", version, frame)
    left = tuple(api for api in body.api_keys if api.api_key != key)
    made = dataclasses.replace(body, api_keys=left)
    return messages.encode_response("api_versions", version, correlation, made)


log = logging.getLogger(__name__)
PRODUCE, API_VERSIONS = 0, 18
_EMPTY_WAIT: Final = 0.1
_BACKLOG: Final = 100
_HANDSHAKE_SECONDS: Final = 10.0


class Listeners:
    """All listeners of one shadow."""

    def __init__(self, mirrored: MirroredLog, leader: Leader) -> None:
        self._log, self._leader, self._real = mirrored, leader, mirrored.config.real
        self._listening: list[asyncio.Task[None]] = []
        self._serving: set[asyncio.Task[None]] = set()
        self.refused: asyncio.Future[None]
        """Made by `start`. Fails with InputError once brokers have asked for what no shadow can
        answer, so that waiting for them is useless."""

    async def start(self) -> None:
        """Binds the ports. Raises EnvironmentFailure when one is in use."""
        config = self._log.config
        self.refused = asyncio.get_running_loop().create_future()
        for name, port in config.listeners.items():
            try:
                listening = socket.create_server(
                    (config.host, config.behind.get(name, port)), backlog=_BACKLOG
                )
            except OSError as error:
                raise EnvironmentFailure(
                    f"port {port}, on which the shadow of {config.link} listens as broker "
                    f"{config.broker_id}, is not free ({os.strerror(error.errno or 0)}); end the "
                    "program that uses it, or start the run again"
                ) from error
            self._listening.append(asyncio.create_task(self._listen(listening, name)))

    def close(self) -> None:
        for task in (*self._listening, *self._serving):
            task.cancel()

    async def _listen(self, listening: socket.socket, listener: str) -> None:
        loop = asyncio.get_running_loop()
        tls = self._tls(listener)
        listening.setblocking(False)
        with listening:
            while True:
                try:
                    accepted, _ = await loop.sock_accept(listening)
                except OSError as error:  # it was closed again, or too many files are open
                    log.warning("a connection to %s was not accepted: %s", listener, error)
                    await asyncio.sleep(_EMPTY_WAIT)
                    continue
                serving = asyncio.create_task(self._serve(Stream(accepted, tls=tls), listener))
                self._serving.add(serving)
                serving.add_done_callback(self._serving.discard)

    def _tls(self, listener: str) -> ssl.SSLContext | None:
        """The certificate that peers are shown, and whether they need one of their own."""
        entries = self._log.config.entries
        entered = entries.inner if listener == self._log.config.followers else entries.clients
        if not entered.authority:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=entered.authority)
        context.load_cert_chain(entries.inner.identity)
        context.verify_mode = ssl.CERT_REQUIRED if entered.identity else ssl.CERT_NONE
        return context

    async def _serve(self, stream: Stream, listener: str) -> None:
        relay = Connections()
        try:
            async with asyncio.timeout(_HANDSHAKE_SECONDS):
                await stream.shake_hands()
            while True:
                answer = await self._answer(await stream.read(), listener, relay)
                if answer is None:
                    return
                await stream.write(answer)
        except (OSError, EOFError, Unanswered):
            pass  # the peer disconnected, or the broker that its requests are relayed to
        except InputError as error:
            if not self.refused.done():
                self.refused.set_exception(error)
        except Malformed as error:
            log.warning("a connection to %s ends: %s", listener, error)
        finally:
            relay.close()
            stream.close()

    async def _answer(self, frame: memoryview, listener: str, relay: Connections) -> Pieces | None:
        key, version, correlation = messages.request_head(frame)
        if listener == self._log.config.followers:
            return await self._leader.answer(key, version, correlation, frame)
        if key == FETCH:
            return await self._client_fetch(version, correlation, frame, listener)
        if key == PRODUCE:
            return refuse_produce(version, correlation, frame)
        if key == LIST_OFFSETS:
            return await self._client_offsets(version, correlation, frame, listener, relay)
        answer = await relay.at(self._any(listener)).forward(frame)
        if key == API_VERSIONS:
            return without_api(answer, version, EPOCH_ENDS)
        return Pieces((messages.LENGTH.pack(len(answer)), answer))

    def _any(self, listener: str) -> str:
        """A live real broker on this listener."""
        for broker, address in self._real[listener].items():
            if broker in self._log.brokers:
                return address
        raise Unanswered(f"no broker of listener {listener} is alive")

    def _follower(self, partition: Partition | None) -> int:
        """The follower that reads are redirected to: the longest one, -1 when there is none."""
        live = partition.live() if partition is not None else {}
        return max(live, key=lambda broker: (live[broker].offset, -broker), default=-1)

    async def _client_fetch(
        self, version: int, correlation: int, frame: memoryview, listener: str
    ) -> Pieces:
        request = messages.decode_request("fetch", version, frame)
        m = messages.response("fetch", version)
        topics, sent_on = [], False
        for topic in request.topics:
            rows = []
            for asked in topic.partitions:
                partition = self._leader.find(topic, version, asked.partition)
                follower = self._follower(partition)
                sent_on |= follower >= 0
                rows.append(pass_on(m, version, asked, partition, follower))
            named = {"topic_id": topic.topic_id} if version >= 13 else {"topic": topic.topic}
            topics.append(m.FetchableTopicResponse(partitions=tuple(rows), **named))
        if not sent_on:
            await asyncio.sleep(_EMPTY_WAIT)  # or the client would retry in a busy loop
        fields = {"error_code": Error.none, "session_id": 0} if version >= 7 else {}
        body = m.FetchResponse(throttle_time=NOTHING, responses=tuple(topics), **fields)
        return messages.encode_response("fetch", version, correlation, body)

    async def _end(
        self,
        partition: Partition,
        offset: int,
        relay: Connections,
        address: str,
        *,
        committed: bool,
    ) -> int | None:
        """The end that a leader would return to a consumer: the follower's last stable offset, or
        its high watermark."""
        ids = {
            name: topic_id for topic_id, name in self._log.names.items() if name == partition.topic
        }
        tp = partition.topic, partition.number
        known = (await follower_bounds(relay.at(address), ids, {tp: offset})).get(tp)
        return None if known is None else known[1 if committed else 0]

    async def _client_offsets(
        self,
        version: int,
        correlation: int,
        frame: memoryview,
        listener: str,
        relay: Connections,
    ) -> Pieces:
        """Asks followers, which answer a debugging replica as a leader answers a consumer."""
        request = messages.decode_request("list_offsets", version, frame)
        m, r = messages.request("list_offsets", version), messages.response("list_offsets", version)
        topics = []
        for topic in request.topics:
            rows = []
            for asked in topic.partitions:
                partition = self._log.partitions.get((topic.name, asked.partition_index))
                follower = self._follower(partition)
                address = self._log.config.brokers.get(follower)
                if address is None or partition is None:
                    number = asked.partition_index
                    rows.append(r.ListOffsetsPartitionResponse(**NO_OFFSET, partition_index=number))
                    continue
                if int(asked.timestamp) == LATEST:
                    committed = version >= 2 and int(request.isolation_level) == 1
                    end = await self._end(
                        partition,
                        partition.followers[follower].offset,
                        relay,
                        address,
                        committed=committed,
                    )
                    rows.append(ended_of(r, version, asked, partition, end))
                    continue
                one = m.ListOffsetsTopic(name=topic.name, partitions=(asked,))
                fields = {"isolation_level": request.isolation_level} if version >= 2 else {}
                fields |= {"timeout": request.timeout} if version >= 10 else {}
                body = m.ListOffsetsRequest(replica_id=DEBUGGING, topics=(one,), **fields)
                answer = await relay.at(address).call("list_offsets", version, body)
                rows.append(answer.topics[0].partitions[0])
            topics.append(r.ListOffsetsTopicResponse(name=topic.name, partitions=tuple(rows)))
        throttle = {"throttle_time": NOTHING} if version >= 2 else {}
        return messages.encode_response(
            "list_offsets",
            version,
            correlation,
            r.ListOffsetsResponse(topics=tuple(topics), **throttle),
        )
