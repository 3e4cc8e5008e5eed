"""Everything that turns a task into a trained run on disk."""
