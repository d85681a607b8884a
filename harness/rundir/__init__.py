"""The run directory: the only package that knows its layout.

    run.json                        format, linkflap version, command, status, Scenario
    events.jsonl                    Event
    operations/<client>.jsonl       Operation, two rows each (invoke, return)
    polls/<reader>.jsonl            Poll
    watermarks/<cluster>.jsonl      Watermark
    groups/<cluster>.jsonl          GroupOffset
    captures/<moment>/bounds.json   [Bounds]
    captures/<moment>/<cluster>/<broker>/<topic>-<partition>/*.log      as the broker wrote them
    logs/                           what processes printed
    manifest.json                   the files when they were captured or the run ended: path -> size
                                    and CRC-32C; of older versions only bytes, -1 for segments
    verdict.json, report.html       the judgement, written again by every `linkflap verify`; also
                                    findings.parquet, examined.parquet

Rows are appended line by line and flushed. So in the directory of a killed harness at most the last
line of each file is torn. The first write that fails ends the record: later writes do nothing, and
`RunWriter.check` and closing raise the reason. The threads that write need no error handling. The
reader returns a torn or missing part, or an impossible row, as a `Damage` with the reason, beside
the intact rows. It does not read a file that has other bytes than the manifest says.

values    the content of run.json, kinds of rows and their former names, and damage
files     rows appended to a file, and files that are replaced
writer    all files that the harness writes, and the histories of client processes
manifest  the files when a run ended, and which are not as they were
reader    reads all of it
"""

from linkflap.harness.rundir.files import (
    FORMAT,
    NOT_WRITABLE,
    Appender,
    Damage,
    EventLog,
    Run,
    Status,
    with_current_kinds,
    write_document,
    write_whole,
)
from linkflap.harness.rundir.manifest import inventory
from linkflap.harness.rundir.reader import RunReader
from linkflap.harness.rundir.writer import ClientWriter, LastRows, RunWriter, last_rows

__all__ = [
    "FORMAT",
    "NOT_WRITABLE",
    "Appender",
    "ClientWriter",
    "Damage",
    "EventLog",
    "LastRows",
    "Run",
    "RunReader",
    "RunWriter",
    "Status",
    "inventory",
    "last_rows",
    "with_current_kinds",
    "write_document",
    "write_whole",
]
