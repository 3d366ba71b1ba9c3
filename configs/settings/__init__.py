"""Settings: their schema, the tree that they are given in, and the sections of each workload."""
