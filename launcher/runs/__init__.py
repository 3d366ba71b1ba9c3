"""Runs on disk: their states, their processes, and how they continue."""
