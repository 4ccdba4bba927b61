"""Rules for structured ops: everything about one structure in one file."""
