"""A machine that has no room, no descriptors, no processes left, or stood still."""
