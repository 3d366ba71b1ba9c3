"""A server for SavedModels that speaks the protocol of TensorFlow Serving, and the messages of that protocol."""
