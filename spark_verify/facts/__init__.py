"""The facts about a partition: its story from events, its rows as columns, and its eras."""
