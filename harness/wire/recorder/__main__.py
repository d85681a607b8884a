"""`python -m linkflap.harness.wire.recorder FOLDER`: forwards connections to the brokers of one
cluster and records their requests and answers, until SIGTERM.

Its settings are recorder.json in FOLDER. Connections that do not speak Kafka's protocol are
forwarded too; one line of the log names each.
"""

from __future__ import annotations

import asyncio
import logging
import mmap
import signal
import sys
from functools import partial
from pathlib import Path

import msgspec

from linkflap.harness.model.history import Operation, Poll
from linkflap.harness.rundir import Appender
from linkflap.harness.rundir.files import Breakage, write_whole
from linkflap.harness.wire.access import host_and_port
from linkflap.harness.wire.forwarding import Forwarder, forward_until_ended
from linkflap.harness.wire.recorder.connection import WireConnection
from linkflap.harness.wire.recorder.history import WireHistory
from linkflap.harness.wire.recorder.interferences import Interferences
from linkflap.harness.wire.recorder.settings import (
    DONE,
    REPORT,
    SEEN,
    Report,
    read_asked,
    read_settings,
    seen_size,
)

log = logging.getLogger("recorder")


async def run(folder: Path, ends: asyncio.Event) -> None:
    settings = read_settings(folder)
    root, report = Path(settings.root), Report()
    rows: Appender[Operation] = Appender(
        root / "operations" / f"wire-{settings.cluster}.jsonl", Breakage(root)
    )
    polls: Appender[Poll] = Appender(
        root / "polls" / f"wire-{settings.cluster}.jsonl", Breakage(root)
    )
    history = WireHistory(settings, rows, polls, report)
    forwarder = Forwarder("a program")

    def done() -> None:
        write_whole(folder / DONE, msgspec.json.encode(interferences.done))

    interferences = Interferences(_counted(folder, len(settings.counted)), done, settings.counted)

    def asked() -> None:
        """Another fault has begun, or one has ended. Clients learn the versions of a broker when
        they connect to it: where these change, they have to connect again."""
        if interferences.ask(read_asked(folder)):
            forwarder.end_connections()
        done()

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, asked)
    observer = partial(WireConnection, history, interferences)
    tls = None if settings.tls is None else settings.tls.ends()
    for port, address in settings.listens.items():
        await forwarder.listen(port, host_and_port(address), observer, tls=tls, host=settings.host)
    log.info("records at %s", ", ".join(map(str, settings.listens)))
    await ends.wait()
    forwarder.close()
    report.handshakes_failed = report.connections - forwarder.opened
    write_whole(folder / REPORT, msgspec.json.encode(report))


def _counted(folder: Path, besides: int) -> memoryview:
    """Where requests are counted: memory that the harness reads (`ClusterRecorder.requested`)."""
    with (folder / SEEN).open("w+b") as file:
        file.truncate(seen_size(besides))
        return memoryview(mmap.mmap(file.fileno(), seen_size(besides)))


if __name__ == "__main__":
    sys.exit(forward_until_ended(run))
