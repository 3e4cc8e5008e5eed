"""Builds batches from TFRecords: reading order, masking, batching. And tables, read and printed."""
