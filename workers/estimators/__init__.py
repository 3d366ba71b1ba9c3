"""Trainings with TensorFlow's Estimators: the same samples, networks and reductions as with Keras."""
