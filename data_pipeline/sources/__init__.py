"""The samples of each data set."""
