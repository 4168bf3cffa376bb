"""Pod churn with faults on a real runtime, and a check of what is left afterwards."""
