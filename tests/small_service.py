"""A service that a cluster could need, run as `python small_service.py PORT NOTES`: it answers
HTTP, has a child process, and notes how many brokers run beside it at each of its starts and at its
end. It does not start while the process number of its last start is in use."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NoReturn

import psutil


def brokers() -> int:
    """The brokers that the same harness runs: it is the parent of this program's supervisor."""
    harness = psutil.Process(os.getppid()).parent()
    assert harness is not None
    return sum("kafka.Kafka" in each.cmdline() for each in harness.children())


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections stay open, as those of real stores do

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()


def main(port: int, notes: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    noted = notes.read_text() if notes.exists() else '{"pid": -1, "began_beside": []}'
    before = json.loads(noted)
    assert not psutil.pid_exists(before["pid"])  # as a lock file of PostgreSQL asks
    began = [*before["began_beside"], brokers()]
    said = {"pid": os.getpid(), "child": child.pid, "began_beside": began}
    notes.write_text(json.dumps(said))

    def end(*_: object) -> NoReturn:
        notes.write_text(json.dumps({**said, "ended_beside": brokers()}))
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    ThreadingHTTPServer(("127.0.0.1", port), Answer).serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
