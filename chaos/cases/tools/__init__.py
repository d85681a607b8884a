"""What the steps of cases share: clients, requests of their own, logs as bytes."""
