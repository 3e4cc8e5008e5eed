"""Training: distribution, optimizer, the step and the loops of training and evaluation."""
