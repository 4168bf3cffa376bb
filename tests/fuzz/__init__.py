"""Coverage-guided fuzzing of code that reads untrusted input; see docs/contributing.md."""
