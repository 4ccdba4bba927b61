"""`remat demo`: a small transformer trained on real text, and what policies keep for its backward pass."""
