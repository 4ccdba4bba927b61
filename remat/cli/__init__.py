"""The command `remat`.

Results go to stdout, progress and warnings to stderr. Exit codes: 0 done, 1 remat could not do it, 2 wrong usage.
"""

try:
    import click as _click  # noqa: F401
    import rich as _rich  # noqa: F401
except ModuleNotFoundError as error:
    if error.name not in ("click", "rich"):
        raise
    raise SystemExit(
        f"remat: the command line needs the package {error.name}. Install it with: pip install 'remat[cli]'"
    ) from None

from remat.cli.group import main as main
