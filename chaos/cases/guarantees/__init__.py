"""Guarantees that clients rely on: each must hold, and its control shows what happens without
it."""
