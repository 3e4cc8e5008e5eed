"""Counts the floating-point operations of a run from its configuration, without building a model.

`passes` describes what a step computes, `paper` and `hardware` are the two counting conventions, `published` has the
paper's own figures, `budget` the cost of a run by its steps, `devices` the published peak speeds of devices.
"""
