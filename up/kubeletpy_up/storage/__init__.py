"""The store of objects, and watches of its changes."""
