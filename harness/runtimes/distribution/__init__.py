"""Where Kafka, Java and toxiproxy-server come from: fetched once per user, checked, and shared by
all runs."""
