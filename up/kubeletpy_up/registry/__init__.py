"""The verbs on every resource, without HTTP."""
