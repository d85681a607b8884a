"""The shadow mirror: offset-exact mirroring into unmodified brokers, by a process that registers as
a broker of the destination cluster.

`python -m linkflap.harness.mirrors.shadow FOLDER` registers with the destination's controller and
leads the mirrored partitions. The destination's brokers replicate them from it, byte for byte.
`mirror.py` is the harness's interface to that process. Its options reproduce the drafts of
KIP-1279.
"""
