"""What a harness process takes of this machine (children, ports, memory, folders, containers), and
how it gives that back."""
