"""What runs have come to, side by side: read from their directories, as a table and as a picture."""
