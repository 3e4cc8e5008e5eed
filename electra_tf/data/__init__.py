"""A data set's files, and batches from them: reading order, masking, batching. And tables, read and printed."""
