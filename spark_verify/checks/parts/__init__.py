"""Code that the kernels of several checks share: log generations, mirrored ranges, transactions,
deliveries to clients."""
