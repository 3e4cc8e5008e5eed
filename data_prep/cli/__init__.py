"""Flags and entry points of the dataset commands."""
