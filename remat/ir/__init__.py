"""The intermediate representation: programs, their ops, and the tools that read and rewrite them."""
