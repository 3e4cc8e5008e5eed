"""Experiments with their records: `python -m experiments.NAME`."""
