"""Failover: open transactions end, producer ids are made safe, and real brokers take the
leadership."""
