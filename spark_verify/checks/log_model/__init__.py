"""The log model that the kernels of several checks share: log generations, mirrored ranges,
transactions and their outcomes, cleaning, replicas, samples, deliveries to clients."""
