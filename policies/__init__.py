"""Policies: what is kept for the backward pass.

The twelve policies of `jax.checkpoint_policies` under the same names, ways to combine and scope them, and `parse` for
their short string forms. Policies are frozen dataclasses; one family per file.
"""

from types import ModuleType as _ModuleType

from remat.decisions import Offload as Offload
from remat.decisions import Policy as Policy
from remat.decisions import Recompute as Recompute
from remat.decisions import Save as Save
from remat.policies.algebra import Both as Both
from remat.policies.algebra import Either as Either
from remat.policies.algebra import save_from_both_policies as save_from_both_policies
from remat.policies.balanced import Balanced as Balanced
from remat.policies.balanced import balanced as balanced
from remat.policies.base import PerEquation as PerEquation
from remat.policies.budget import Budget as Budget
from remat.policies.budget import Planned as Planned
from remat.policies.budget import budget as budget
from remat.policies.burn.strategies import BalancedCheckpointing as BalancedCheckpointing
from remat.policies.burn.strategies import NoCheckpointing as NoCheckpointing
from remat.policies.burn.strategies import burn_balanced as burn_balanced
from remat.policies.burn.strategies import burn_no_checkpointing as burn_no_checkpointing
from remat.policies.dots import DotsSaveable as DotsSaveable
from remat.policies.dots import OffloadDotWithNoBatchDims as OffloadDotWithNoBatchDims
from remat.policies.dots import checkpoint_dots as checkpoint_dots
from remat.policies.dots import checkpoint_dots_with_no_batch_dims as checkpoint_dots_with_no_batch_dims
from remat.policies.dots import dots_saveable as dots_saveable
from remat.policies.dots import dots_with_no_batch_dims_saveable as dots_with_no_batch_dims_saveable
from remat.policies.dots import offload_dot_with_no_batch_dims as offload_dot_with_no_batch_dims
from remat.policies.extremes import EverythingSaveable as EverythingSaveable
from remat.policies.extremes import NothingSaveable as NothingSaveable
from remat.policies.extremes import everything_saveable as everything_saveable
from remat.policies.extremes import nothing_saveable as nothing_saveable
from remat.policies.names import SaveAndOffloadOnlyTheseNames as SaveAndOffloadOnlyTheseNames
from remat.policies.names import SaveAnyNamesButThese as SaveAnyNamesButThese
from remat.policies.names import SaveAnythingExceptTheseNames as SaveAnythingExceptTheseNames
from remat.policies.names import SaveOnlyTheseNames as SaveOnlyTheseNames
from remat.policies.names import save_and_offload_only_these_names as save_and_offload_only_these_names
from remat.policies.names import save_any_names_but_these as save_any_names_but_these
from remat.policies.names import save_anything_except_these_names as save_anything_except_these_names
from remat.policies.names import save_only_these_names as save_only_these_names
from remat.policies.parse import parse as parse
from remat.policies.scan_segments import ScanSegments as ScanSegments
from remat.policies.scan_segments import scan_segments as scan_segments
from remat.policies.scope import ScanBody as ScanBody
from remat.policies.scope import Within as Within
from remat.policies.scope import scan_body as scan_body
from remat.policies.scope import within as within
from remat.policies.segments import Segments as Segments
from remat.policies.segments import segments as segments
from remat.policies.substituting import Substituting as Substituting
from remat.policies.substituting import substituting as substituting

# The words of the string forms, so that `policies.dots` is what "dots" is, and not the file of that family.
everything = everything_saveable
nothing = nothing_saveable
dots = dots_saveable
dots_no_batch = dots_with_no_batch_dims_saveable
names = save_only_these_names
burn = burn_balanced()

__all__ = sorted(k for k, v in globals().items() if not (k.startswith("_") or isinstance(v, _ModuleType)))  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    """The public names, without the files that they are in."""
    return __all__
