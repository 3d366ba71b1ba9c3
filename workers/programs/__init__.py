"""What the programs of users find on their path in a rehearsal."""
