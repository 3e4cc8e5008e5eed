"""The configuration of a run: schema, defaults, checks and YAML loader."""
