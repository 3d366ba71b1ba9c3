"""What the user sees of a run and of a plan."""
