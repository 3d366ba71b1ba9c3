"""Exported models: a network with the weights of a training, as a program that a server runs."""
