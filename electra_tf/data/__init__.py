"""Builds batches from TFRecords: reading order, masking, batching."""
