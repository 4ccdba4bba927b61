"""Everything that depends on a JAX version, in one place.

Supported: jax 0.10 and newer, with the flags `jax_remat3` and `jax_custom_vjp3` off or on. With those flags, names,
checkpoint regions and custom derivatives appear in a jaxpr as `call_hi_primitive` equations that carry an object
(`_prim`) instead of primitives of their own; jax 0.12 merges `ClosedJaxpr` into `Jaxpr` and describes the operands of
a scan by trees (`ft_in`) instead of counts. All of this is read through public names and attributes. Nothing outside
of this folder asks which JAX there is.
"""

from jax.ad_checkpoint import checkpoint_name as checkpoint_name
from jax.extend.core.primitives import jit_p as jit_p
from jax.extend.core.primitives import name_p as name_p

from remat.jax_compat.binding import array_of_number as array_of_number
from remat.jax_compat.binding import bind as bind
from remat.jax_compat.binding import evaluate_jaxpr as evaluate_jaxpr
from remat.jax_compat.binding import frames_of as frames_of
from remat.jax_compat.binding import is_barrier as is_barrier
from remat.jax_compat.binding import jit_is_disabled as jit_is_disabled
from remat.jax_compat.binding import optimization_barrier as optimization_barrier
from remat.jax_compat.binding import orders_by_barriers as orders_by_barriers
from remat.jax_compat.binding import part_of_jaxpr as part_of_jaxpr
from remat.jax_compat.binding import reduce_precision as reduce_precision
from remat.jax_compat.binding import scopes_added as scopes_added
from remat.jax_compat.binding import scopes_of_call as scopes_of_call
from remat.jax_compat.binding import trace_jitted as trace_jitted
from remat.jax_compat.binding import with_constraints as with_constraints
from remat.jax_compat.binding import with_scopes as with_scopes
from remat.jax_compat.binding import with_source as with_source
from remat.jax_compat.equations import CALLS as CALLS
from remat.jax_compat.equations import CHECKPOINTS as CHECKPOINTS
from remat.jax_compat.equations import CUSTOM_JVPS as CUSTOM_JVPS
from remat.jax_compat.equations import CUSTOM_RULE as CUSTOM_RULE
from remat.jax_compat.equations import HIGH_CHECKPOINTS as HIGH_CHECKPOINTS
from remat.jax_compat.equations import HIGH_NAMES as HIGH_NAMES
from remat.jax_compat.equations import REGION as REGION
from remat.jax_compat.equations import Literal as Literal
from remat.jax_compat.equations import Opened as Opened
from remat.jax_compat.equations import Tracer as Tracer
from remat.jax_compat.equations import depends_on as depends_on
from remat.jax_compat.equations import dots_primitive_names as dots_primitive_names
from remat.jax_compat.equations import effects_of as effects_of
from remat.jax_compat.equations import equation_count as equation_count
from remat.jax_compat.equations import has_batch_dims as has_batch_dims
from remat.jax_compat.equations import holds_regions as holds_regions
from remat.jax_compat.equations import inner_primitives as inner_primitives
from remat.jax_compat.equations import is_mostly_a_call as is_mostly_a_call
from remat.jax_compat.equations import is_structured as is_structured
from remat.jax_compat.equations import jaxprs_in as jaxprs_in
from remat.jax_compat.equations import kind_of as kind_of
from remat.jax_compat.equations import scan_counts as scan_counts
from remat.jax_compat.equations import unwrap as unwrap
from remat.jax_compat.sharding import inside_shard_map as inside_shard_map
from remat.jax_compat.sharding import joined_type as joined_type
from remat.jax_compat.sharding import on_mesh_of as on_mesh_of
from remat.jax_compat.sharding import shard_map as shard_map
from remat.jax_compat.sharding import spec_of_parts as spec_of_parts
from remat.jax_compat.sharding import spmd_axis as spmd_axis
from remat.jax_compat.values import HOST_KINDS as HOST_KINDS
from remat.jax_compat.values import MEMORY_KINDS as MEMORY_KINDS
from remat.jax_compat.values import cotangent_type as cotangent_type
from remat.jax_compat.values import is_move as is_move
from remat.jax_compat.values import is_on_host as is_on_host
from remat.jax_compat.values import memory_type as memory_type
from remat.jax_compat.values import move as move
from remat.jax_compat.values import policy_names as policy_names
from remat.jax_compat.values import stacked_type as stacked_type
from remat.jax_compat.values import tangent_type as tangent_type
from remat.jax_compat.values import to_memory as to_memory
from remat.jax_compat.values import zeros_of as zeros_of
