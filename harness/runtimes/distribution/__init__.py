"""Fetches Kafka, Java and toxiproxy-server: once per user, checked, and shared by all runs."""
