"""What starts instances: poprun, and Open MPI."""
