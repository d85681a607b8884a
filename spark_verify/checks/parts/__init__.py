"""What the kernels of several checks share: log generations, mirrored ranges, transactions, what
clients got."""
