"""Failover: ends open transactions, makes producer ids safe, and hands the leadership over to real
brokers."""
