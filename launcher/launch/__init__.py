"""From settings to a launch: the plan, the checks, the command."""
