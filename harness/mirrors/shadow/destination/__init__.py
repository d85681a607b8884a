"""The destination's side: the shadow as a registered broker that leads the mirrored partitions."""
