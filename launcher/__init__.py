"""The command line: plans, commands, and the supervision of what they start."""
