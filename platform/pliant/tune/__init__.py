"""Searches hyperparameters: what is tried next, what goes on, what stops, and a log from which all of it follows."""
