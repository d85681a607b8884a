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
    manifest.json                   what there was when the run ended: path -> bytes (-1 for
                                    segments: only that they exist)
    verdict.json, report.html       the judgement, made anew by every `linkflap verify`; and
                                    findings.parquet, examined.parquet

Rows are appended line by line and flushed, so that a killed harness leaves a directory in which at
most the last line of a file is torn. The first write that fails ends the record: nothing more is
written, and whoever closes it, or asks before (`RunWriter.check`), learns why; the threads that
write need not care. Readers never half trust it: a torn or missing part, or a row that says what
cannot be, becomes a `Damage` with the reason, beside the rows that are whole.

values         what run.json says, kinds of rows, and damage
files          rows appended to a file, and files that are replaced
writer         what the harness writes
client_writer  what processes of clients write, and where one goes on that is started again
manifest       what there was when a run ended
reader         all of it, read
impossible     rows that say what cannot be
renamed        kinds of anomalies that older versions called something else
"""

from linkflap.harness.rundir.client_writer import ClientWriter, LastRows, last_rows
from linkflap.harness.rundir.files import Appender, EventLog, write_whole
from linkflap.harness.rundir.manifest import inventory
from linkflap.harness.rundir.reader import RunReader
from linkflap.harness.rundir.renamed import with_current_kinds
from linkflap.harness.rundir.values import FORMAT, Damage, Run, Status
from linkflap.harness.rundir.writer import RunWriter

__all__ = [
    "FORMAT",
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
    "write_whole",
]
