"""The rules, the solver, and the plan."""
