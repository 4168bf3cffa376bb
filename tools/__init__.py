"""Development tools: code generation, and the environment for tests, bench and up.sh."""
