"""Choosing what to keep so that a step fits into a number of bytes at the least extra time."""
