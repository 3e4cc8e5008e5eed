"""What leaves the project or comes into it: SavedModels and the authors' checkpoints."""
