"""The state of a training: checkpoints, history, and what they become."""
