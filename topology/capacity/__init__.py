"""What a job needs, beside what the POD has: memory, input, energy."""
