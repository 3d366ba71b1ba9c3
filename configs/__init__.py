"""Settings: shipped YAML, the dataclasses that describe it, and the errors of the whole tool."""
