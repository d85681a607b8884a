"""The facts about a partition: what the events say about it, its rows as columns, and its eras."""
