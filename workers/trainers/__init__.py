"""Two ways to train the same network on a backend: with Keras, and with TensorFlow's Estimators."""
