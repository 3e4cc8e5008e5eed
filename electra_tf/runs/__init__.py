"""A run on disk: its directory, checkpoints and reports, the loop of a run, and signals."""
