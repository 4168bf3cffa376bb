"""Claims as data: resolved volumes, what exists of them on disk, and the plugin interface."""
