"""The recorder: a proxy before the brokers of one cluster that forwards each byte unchanged, and
writes down what programs of the user's ask for and are promised."""
