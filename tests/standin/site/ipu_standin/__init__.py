"""A strict stand-in for the Poplar SDK's Python side: what an SDK has not raises, and what it has runs on CPUs."""
