"""What a harness process holds of this machine, and how all of it is given back: children, ports, memory, folders, containers."""
