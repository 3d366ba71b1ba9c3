"""Running a launch: processes, signals, attempts, logs, verdict."""
