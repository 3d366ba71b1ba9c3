"""Pages about runs: what a run has left, read into one value and written as one HTML file."""
