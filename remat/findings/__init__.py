"""What is likely to be wrong with the way a function is checkpointed: one kind of finding a file."""
