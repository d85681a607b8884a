"""The resources of this machine that a harness process takes and returns: children, ports, memory,
folders, containers."""
