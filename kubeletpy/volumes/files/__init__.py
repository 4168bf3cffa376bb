"""Files, directories and mounts of volumes, below every kind of volume."""
