"""Coverage-guided fuzzing of what reads strangers' bytes; see docs/contributing.md."""
