"""A run on disk: its directory, checkpoints, reports and interruption."""
