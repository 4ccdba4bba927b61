"""Transformations of programs: linearize, split into forward and backward, and what users call on top of them."""
