"""Policies: what is kept for the backward pass.

The twelve policies of `jax.checkpoint_policies` under the same names, ways to combine and scope them, and `parse` for
their short string forms. Policies are frozen dataclasses; one family per file.
"""

from remat.decisions import Offload as Offload
from remat.decisions import Policy as Policy
from remat.decisions import Recompute as Recompute
from remat.decisions import Save as Save
from remat.policies.algebra import save_from_both_policies as save_from_both_policies
from remat.policies.balanced import balanced as balanced
from remat.policies.base import PerEquation as PerEquation
from remat.policies.burn.strategies import burn_balanced as burn_balanced
from remat.policies.burn.strategies import burn_no_checkpointing as burn_no_checkpointing
from remat.policies.dots import checkpoint_dots as checkpoint_dots
from remat.policies.dots import checkpoint_dots_with_no_batch_dims as checkpoint_dots_with_no_batch_dims
from remat.policies.dots import dots_saveable as dots_saveable
from remat.policies.dots import dots_with_no_batch_dims_saveable as dots_with_no_batch_dims_saveable
from remat.policies.dots import offload_dot_with_no_batch_dims as offload_dot_with_no_batch_dims
from remat.policies.extremes import everything_saveable as everything_saveable
from remat.policies.extremes import nothing_saveable as nothing_saveable
from remat.policies.names import save_and_offload_only_these_names as save_and_offload_only_these_names
from remat.policies.names import save_any_names_but_these as save_any_names_but_these
from remat.policies.names import save_anything_except_these_names as save_anything_except_these_names
from remat.policies.names import save_only_these_names as save_only_these_names
from remat.policies.parse import parse as parse
from remat.policies.scope import scan_body as scan_body
from remat.policies.scope import within as within
from remat.policies.substituting import substituting as substituting
