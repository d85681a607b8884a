"""The shadow mirror: offset-exact mirroring onto stock brokers, by a process that the destination
takes for a broker.

`python -m linkflap.harness.mirrors.shadow FOLDER` registers with the destination's controller and
leads the mirrored partitions; the destination's brokers follow it byte for byte. `mirror.py` is the
side of the harness. Options play the generations of KIP-1279.
"""
