"""What the discussion of KIP-1279 (Cluster Mirroring) claims, on stock brokers with the shadow
mirror or on the wire."""
