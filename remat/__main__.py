"""`python -m remat` is the command `remat`."""

from remat.cli import main

if __name__ == "__main__":
    main(prog_name="remat")
