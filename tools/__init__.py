"""Development tools: code generation and the environment that tests, bench and up.sh run on."""
