"""How many bytes are alive at each step of a program, from the program alone."""
