"""Benchmarks by specification: variants, their commands and logs, numbers out of the logs, results."""
