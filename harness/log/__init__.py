"""Kafka's log format, read from bytes: no sockets, no JVM.

    layout      the v2 record batch, field by field
    walk        the batches of a buffer, by the standard library alone
    batch_headers headers as rows of a numpy structure, and one array per field
    segments    segment files, memory-mapped; and damage to their bytes
    batches     batch headers of a log as numpy columns, CRC-32C recomputed
    records     data records as numpy columns (offset, uid, operation, digest, timestamp)
    codecs      none, gzip, snappy, lz4, zstd
    reference   the slow and obvious decoder of everything; tests compare the fast ones with it

Nothing here raises an error about bytes: unreadable bytes become a `Damage` with file and position.
"""
