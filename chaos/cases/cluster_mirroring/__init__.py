"""Claims from the discussion of KIP-1279 (Cluster Mirroring), on stock brokers with the shadow
mirror or on the wire."""
