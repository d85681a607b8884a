"""The shadow mirror: offset-exact mirroring onto stock brokers, by a process that the destination takes for a broker.

`python -m harness.mirrors.shadow FOLDER` registers with the destination's controller, leads the mirrored partitions, and the
destination's brokers follow it byte for byte. `mirror.py` is the harness' side of it. It plays KIP-1279's semantics by option.
"""
