"""Elastic control: how many workers a run has, and how it goes on when machines come and go."""
