"""Schedulers: scripts and manifests made from a plan, and what the schedulers say of them later."""
