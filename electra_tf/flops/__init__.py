"""Floating-point operations of a run, from what its objective says that a step computes: no model is built here.

`passes` holds that description, `paper` and `hardware` are the two conventions, `published` the paper's own figures,
`budget` the cost of a run by its steps, `devices` the speeds that makers publish. `traced` and `xla` count what
TensorFlow and XLA make of a step; they alone import TensorFlow.
"""
