"""The kinds of persistent volumes that need no driver."""
