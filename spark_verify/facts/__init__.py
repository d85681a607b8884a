"""What is known of a partition: its story from events, its rows as columns, and the eras that
follow from them."""
