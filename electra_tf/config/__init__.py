"""What a run is: the schema with every default and check, and the YAML loader."""
