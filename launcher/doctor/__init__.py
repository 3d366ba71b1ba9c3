"""The doctor: what a machine has and lacks for each engine, one kind of check a file."""
