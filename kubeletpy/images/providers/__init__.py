"""Credential providers: programs beside the agent that know passwords of registries."""
