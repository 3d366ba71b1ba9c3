"""The command line: the entry, the options, and one module per command."""
