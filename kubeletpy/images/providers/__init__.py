"""Credential providers: external programs that supply registry credentials."""
