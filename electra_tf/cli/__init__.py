"""Flags and entry points of the commands."""
