"""Samples, their order, and the tf.data streams that feed an instance."""
