"""A run, from checked settings to its result."""
