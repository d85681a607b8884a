"""What a shadow's heartbeats request while the active controller changes; the controller is a
fake."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest

from linkflap.harness.mirrors.shadow.destination.membership import Membership
from linkflap.harness.mirrors.shadow.journal import Journal
from linkflap.harness.wire import messages
from linkflap.harness.wire.connection import Unanswered, quietly_closed
from linkflap.harness.wire.messages import Error
from tests.shadows import config


class Controller:
    """Fences and unfences a broker as its heartbeats request. It is active for `answers` more
    heartbeats."""

    def __init__(self) -> None:
        self.answers, self.fenced, self.epoch = 0, False, 0
        self._serving: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        """The port."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            await asyncio.gather(*self._serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.add(cast("asyncio.Task[None]", asyncio.current_task()))
        try:
            while True:
                frame = await reader.readexactly(
                    *messages.LENGTH.unpack(await reader.readexactly(messages.LENGTH.size))
                )
                _, version, correlation = messages.request_head(frame)
                asked = messages.decode_request("broker_heartbeat", version, frame)
                body = self._beaten(
                    messages.response("broker_heartbeat", version), want_fence=asked.want_fence
                )
                writer.write(
                    bytes(messages.encode_response("broker_heartbeat", version, correlation, body))
                )
        except EOFError:
            await quietly_closed(writer)

    def _beaten(self, m: messages.Message, *, want_fence: bool) -> messages.Message:
        self.answers -= 1
        active = self.answers >= 0
        if active:
            # of each partition that it leads: nobody does, or it does again
            self.epoch += self.fenced != want_fence
            self.fenced = want_fence
        error = Error.none if active else Error.not_controller
        return m.BrokerHeartbeatResponse(
            throttle_time=timedelta(),
            error_code=error,
            is_fenced=self.fenced,
            should_shut_down=False,
        )


@pytest.mark.parametrize("answers", [0, 1], ids=["before it is fenced", "while it is fenced"])
def test_a_shadow_whose_controller_moves_while_epochs_are_raised_is_not_left_fenced(
    tmp_path: Path, answers: int
) -> None:
    async def play() -> None:
        controller = Controller()
        async with controller.listening() as port:
            membership = Membership(config(controllers=(f"127.0.0.1:{port}",)), Journal(tmp_path))
            try:
                await moving(controller, membership)
            finally:
                membership._heart.close()

    async def moving(controller: Controller, membership: Membership) -> None:
        controller.answers = answers
        with pytest.raises(Unanswered):
            await membership.raise_epochs()
        controller.answers = 100
        await membership._beat()
        assert not controller.fenced
        assert not membership.fenced
        raised = controller.epoch
        await membership.raise_epochs()
        assert controller.epoch == raised + 2

    asyncio.run(asyncio.wait_for(play(), 60))
