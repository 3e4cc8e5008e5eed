"""Floating-point operations of a run, from its configuration alone: no model is built and TensorFlow is not imported.

`paper` counts as the paper does, `hardware` what a device has to compute; `run` adds either up over the steps of a run
and finds the steps that a budget pays for.
"""
