"""What `ipulaunch data ...` does: one module per task, each with `run(options, report)`."""
