"""The doctor: what a machine has and lacks for each engine, one group of checks per file."""
