"""Loops over time whose backward pass keeps few carries, without unrolling the loop in the program."""
