"""A churn of pods with faults on a real runtime, and the question what is left of it."""
