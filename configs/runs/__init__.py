"""The run directory: its files, its job, and what may be read and written there."""
