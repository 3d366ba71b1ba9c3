"""The life of an instance: binding, threads, heartbeat, records, stopping."""
