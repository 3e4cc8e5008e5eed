"""Hugging Face folders, as transformers reads and writes them."""
