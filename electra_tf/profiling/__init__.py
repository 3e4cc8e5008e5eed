"""What training costs: the paper's figures, and formulas beside what is counted in the traced training step.

The formulas themselves stand in `electra_tf.config.flops`.
"""
