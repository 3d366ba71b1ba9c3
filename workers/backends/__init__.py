"""Two ways to run the same job: on IPUs through the Poplar SDK, and on CPUs over MPI."""
