"""Servers of models: TensorFlow Serving's own where it is found, else ours, each a process that is attended."""
