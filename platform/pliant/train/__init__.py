"""The training job: an exact step over a deterministic stream, and the loop around it."""
