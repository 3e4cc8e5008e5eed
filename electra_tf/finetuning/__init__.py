"""The runs of a fine-tuning: seeds, their summary, the milestones of a pre-training; predictions for files."""
