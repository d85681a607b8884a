"""Cluster Mirroring itself (KIP-1279), on clusters that run a build of its branch; driven by that
build's own Java Admin."""
