"""The command line: parses, calls, renders; one command a file."""
