"""What runs on the hosts: one process per instance."""
