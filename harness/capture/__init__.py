"""What a run takes from its clusters beside its clients' history: raw logs at a moment, and watermarks all along."""
