"""The mirrored log: its batches, leader epochs and producer ids."""
