"""Training: distribution, optimizer, the step, the loop, checkpoints and evaluation."""
