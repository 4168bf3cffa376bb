"""The command line. Each command is a module with ``main(arguments) -> exit code``."""
