"""Defects and limits of released Kafka: transactions, coordinators, leadership, clients."""
