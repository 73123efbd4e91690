"""Tells a tracker of a sweep: a run with a child for each trial, built on what ``track`` has for runs."""
