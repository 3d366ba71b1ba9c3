"""Keras models from the networks' descriptions."""
