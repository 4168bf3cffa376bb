"""What the runtime reports, as plain data."""
