"""What the runtime says, as plain data."""
