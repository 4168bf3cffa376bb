"""What the API refuses, in its own words: one module per subject, no state and no I/O."""
