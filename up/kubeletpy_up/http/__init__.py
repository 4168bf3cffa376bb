"""HTTP in front of the registry."""
