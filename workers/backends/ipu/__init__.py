"""The IPU backend."""
