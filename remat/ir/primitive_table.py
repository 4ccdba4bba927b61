"""What JAX's primitives are like, as one table: the *kind* of operation, how it is *bound*, and how Burn treats it.

*Memory-bound* operations map element by element or move data: computing them again costs about as much as reading the
result from memory. *Compute-bound* ones reduce, contract, sort, scatter, factor, communicate or draw random bits.
Results of *untracked* ones never carry a gradient: comparisons, integers, random bits. A primitive that the table does
not have (one that a user made) counts as compute-bound.

Burn (0.22.1) marks its operations in the same way, but moves a few to the other side: whatever selects by a mask,
changes the type of floats, joins arrays or pads them. And what its backward step asks for differs from what JAX's
derivatives keep: it is the operation's *inputs*, from which the step computes the rest:

- `NOTHING`: only shapes, axes, scalars;
- `OPERANDS`: every array operand, whether or not it carries a gradient; `TWICE`: the one operand, asked for twice;
- `PARTNERS`: an operand if the other one carries a gradient (products);
- `DIVISOR`: the first if the second carries a gradient, and the second always (quotients);
- `OWN`: something that the step holds itself: a mask, indices, the operand of a cumulative product. It is never
  recomputed and never counted.

Sources: Burn's `ops/tensor.rs`, `ops/activation.rs` and `ops/module.rs`; primitives that Burn has no counterpart of
are placed by analogy.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Bound(StrEnum):
    """What limits an operation, or that gradients do not go through it."""

    MEMORY = "memory-bound"
    COMPUTE = "compute-bound"
    UNTRACKED = "untracked"


class Retrieves(StrEnum):
    """What Burn's backward step of an operation asks for; see the module docstring."""

    NOTHING = "nothing"
    OPERANDS = "operands"
    TWICE = "the operand twice"
    PARTNERS = "an operand if the other is tracked"
    DIVISOR = "the first if the second is tracked, and the second"
    OWN = "its own state"


@dataclass(frozen=True)
class Row:
    """What holds for some primitives. `burn` is Burn's mark where it differs from `bound`."""

    kind: str
    bound: Bound
    retrieves: Retrieves
    primitives: str
    burn: Bound | None = None

    @property
    def burn_bound(self) -> Bound:
        """How Burn marks them."""
        return self.burn or self.bound


MEMORY, COMPUTE, UNTRACKED = Bound
NOTHING, OPERANDS, TWICE, PARTNERS, DIVISOR, OWN = Retrieves

TABLE = [
    # One result element from one element of each operand.
    Row("elementwise", MEMORY, NOTHING, "add add_any add_jaxvals sub neg sign floor ceil round real imag conj complex"),
    Row("elementwise", MEMORY, PARTNERS, "mul"),
    Row("elementwise", MEMORY, DIVISOR, "div rem"),
    Row("elementwise", MEMORY, TWICE, "square"),
    Row(
        "elementwise", MEMORY, OPERANDS, "abs exp exp2 expm1 log log1p log2 pow integer_pow sqrt rsqrt cbrt reciprocal"
    ),
    Row("elementwise", MEMORY, OPERANDS, "sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh"),
    Row("elementwise", MEMORY, OPERANDS, "erf erfc erf_inv logistic polynomial one_minus_square nextafter"),
    Row("elementwise", MEMORY, OWN, "max min clamp select_n", burn=COMPUTE),
    Row("elementwise", UNTRACKED, NOTHING, "eq ne lt le gt ge eq_to le_to lt_to is_finite and or not xor"),
    Row("elementwise", UNTRACKED, NOTHING, "shift_left shift_right_arithmetic shift_right_logical"),
    Row("elementwise", UNTRACKED, NOTHING, "population_count clz mulhi multiple_of stop_gradient zeros_like"),
    # The type of the elements changes.
    Row("cast", MEMORY, NOTHING, "convert_element_type", burn=COMPUTE),
    Row("cast", MEMORY, NOTHING, "reduce_precision"),
    Row("cast", UNTRACKED, NOTHING, "bitcast_convert_type"),
    # Elements are rearranged, repeated or selected; or the operand passes through.
    Row("view", MEMORY, NOTHING, "reshape squeeze expand_dims transpose rev broadcast_in_dim broadcast_to"),
    Row("view", MEMORY, NOTHING, "slice dynamic_slice split unstack tile real_view"),
    Row("view", MEMORY, NOTHING, "copy copy_p name optimization_barrier sharding_constraint layout_constraint"),
    Row("view", UNTRACKED, NOTHING, "iota"),
    # Data is moved into a new array.
    Row("move", MEMORY, NOTHING, "dynamic_update_slice"),
    Row("move", MEMORY, NOTHING, "concatenate pad stack", burn=COMPUTE),
    # Everything else costs more to compute again than to read.
    Row("special function", COMPUTE, OPERANDS, "lgamma digamma polygamma zeta bessel_i0e bessel_i1e"),
    Row("special function", COMPUTE, OPERANDS, "igamma igammac igamma_grad_a regularized_incomplete_beta"),
    Row("contraction", COMPUTE, PARTNERS, "dot_general ragged_dot_general symmetric_product scaled_dot scaled_matmul"),
    Row("contraction", COMPUTE, OPERANDS, "conv_general_dilated scaled_matmul_wrapper cudnn_fusion"),
    Row("attention", COMPUTE, OWN, "dot_product_attention_fwd dot_product_attention_fwd_wrapper"),
    Row("attention", COMPUTE, OWN, "dot_product_attention_bwd dot_product_attention_bwd_wrapper"),
    Row("attention", COMPUTE, OWN, "dot_product_attention_fp8_fwd dot_product_attention_fp8_fwd_wrapper"),
    Row("attention", COMPUTE, OWN, "dot_product_attention_fp8_bwd dot_product_attention_fp8_bwd_wrapper"),
    Row("reduction", COMPUTE, NOTHING, "reduce_sum cumsum"),
    Row("reduction", COMPUTE, OWN, "reduce_prod reduce_max reduce_min reduce cumprod cummax cummin cumlogsumexp"),
    Row("reduction", COMPUTE, OPERANDS, "reduce_window_sum reduce_window_max reduce_window_min reduce_window"),
    Row("reduction", COMPUTE, OWN, "select_and_gather_add select_and_scatter select_and_scatter_add"),
    Row("reduction", UNTRACKED, NOTHING, "reduce_and reduce_or reduce_xor argmax argmin"),
    Row("indexing", COMPUTE, OWN, "gather scatter scatter-add scatter-sub scatter-mul scatter-min scatter-max"),
    Row("sorting", COMPUTE, OWN, "sort top_k approx_top_k"),
    Row("transform", COMPUTE, NOTHING, "fft"),
    Row(
        "linear algebra", COMPUTE, OWN, "cholesky cholesky_update lu qr svd eig eigh schur hessenberg geqrf geqp3 ormqr"
    ),
    Row("linear algebra", COMPUTE, OWN, "householder_product triangular_solve tridiagonal tridiagonal_solve spsolve"),
    Row("linear algebra", COMPUTE, OWN, "custom_linear_solve linear_solve"),
    Row("linear algebra", UNTRACKED, NOTHING, "lu_pivots_to_permutation"),
    Row("random", UNTRACKED, NOTHING, "random_bits random_seed random_wrap random_unwrap random_fold_in random_split"),
    Row("random", UNTRACKED, NOTHING, "random_clone rng_bit_generator rng_uniform threefry2x32 threefry4x32"),
    Row("random", UNTRACKED, NOTHING, "philox2x32 philox4x32 iota_2x32_shape"),
    Row("random", COMPUTE, OWN, "random_gamma"),
    Row("recurrent", COMPUTE, OWN, "rnn_fwd rnn_bwd"),
    # Communication between devices, and what says how arrays are spread over them.
    Row("collective", COMPUTE, NOTHING, "psum psum_invariant pbroadcast pbroadcast_dynamic ppermute psend precv"),
    Row(
        "collective",
        COMPUTE,
        NOTHING,
        "all_gather all_gather_invariant all_gather_reduced all_to_all ragged_all_to_all",
    ),
    Row("collective", COMPUTE, NOTHING, "reduce_scatter unreduced_psum unreduced_reduce_scatter preduced"),
    Row("collective", COMPUTE, NOTHING, "psum_start psum_done psum_invariant_start unreduced_psum_start"),
    Row("collective", COMPUTE, NOTHING, "all_gather_start all_gather_done all_gather_reduced_start all_to_all_start"),
    Row(
        "collective", COMPUTE, NOTHING, "all_to_all_done ppermute_start ppermute_done pbroadcast_start pbroadcast_done"
    ),
    Row("collective", COMPUTE, NOTHING, "reduce_scatter_start reduce_scatter_done unreduced_reduce_scatter_start"),
    Row("collective", COMPUTE, OWN, "pmax pmin unreduced_pmax unreduced_pmin"),
    Row("collective", UNTRACKED, NOTHING, "axis_index platform_index program_id num_programs"),
    Row("sharding", COMPUTE, NOTHING, "device_put with_memory_space_constraint reshard relayout pvary"),
    Row(
        "sharding", COMPUTE, NOTHING, "reduced_vary_cast reduced_vary_cast_p vary_unreduced_cast vary_unreduced_cast_p"
    ),
    Row("sharding", COMPUTE, NOTHING, "global_array_to_host_local_array host_local_array_to_global_array"),
    # Programs inside programs. remat looks into those that it can take apart; the rest is one operation.
    Row(
        "call",
        COMPUTE,
        OWN,
        "jit call closed_call core_call pjit remat remat2 remat_opt custom_jvp_call custom_vjp_call",
    ),
    Row(
        "call",
        COMPUTE,
        OWN,
        "custom_jvp_call_jaxpr custom_vmap_call custom_lin custom_partitioning linear_call composite",
    ),
    Row(
        "call", COMPUTE, OWN, "call_exported call_hi_primitive call_hi_primitive_linearized jaxpr_call eval_jaxpr stage"
    ),
    Row("call", COMPUTE, OWN, "compute_on xla_metadata_call xla_metadata_value shard_map pallas_call ffi_call"),
    Row("call", COMPUTE, OWN, "run_state run_scoped core_map mpmd_map to_edtype from_edtype"),
    Row("loop", COMPUTE, OWN, "scan while cond"),
    # Sparse arrays of jax.experimental.
    Row(
        "sparse",
        COMPUTE,
        OWN,
        "bcoo_dot_general bcoo_dot_general_sampled bcoo_spdot_general bcoo_extract bcoo_fromdense",
    ),
    Row("sparse", COMPUTE, OWN, "bcoo_sort_indices bcoo_sum_duplicates bcoo_todense bcoo_transpose bcsr_dot_general"),
    Row(
        "sparse", COMPUTE, OWN, "bcsr_extract bcsr_fromdense bcsr_todense coo_fromdense coo_matmat coo_matvec coo_spmm"
    ),
    Row(
        "sparse", COMPUTE, OWN, "coo_spmv coo_todense csr_fromdense csr_matmat csr_matvec csr_spmm csr_spmv csr_todense"
    ),
    Row("sparse", COMPUTE, OWN, "todense"),
    # Effects, mutable references, tokens, checks, and what only exists inside kernels: never computed again.
    Row(
        "effect", COMPUTE, OWN, "pure_callback io_callback buffer_callback debug_callback debug_print inspect_sharding"
    ),
    Row("effect", COMPUTE, OWN, "check shape_assertion dce_sink delay tie unreachable pin unpin"),
    Row("reference", COMPUTE, OWN, "get swap addupdate accum_grad_in_ref new_ref empty_ref free_ref freeze get_global"),
    Row("reference", COMPUTE, OWN, "new_box box_get box_set new_log log_extend log_read create_linear"),
    Row("reference", COMPUTE, OWN, "masked_load masked_swap semaphore_read semaphore_signal semaphore_wait"),
    Row("token", UNTRACKED, NOTHING, "create_token after_all empty empty2 dim_as_value dimension_size"),
]
"""The table. Each primitive stands in one row, by the name that equations show."""

CHEAP_KINDS = frozenset({"elementwise", "cast", "view", "move"})
"""Kinds that computing again costs about as much as reading the result from memory."""

UNKNOWN = Row("unknown", COMPUTE, OWN, "")
"""What is assumed of primitives that the table does not have."""

BY_NAME: dict[str, Row] = {name: row for row in TABLE for name in row.primitives.split()}
"""From the name of a primitive to its row."""

CHEAP_NAMES = frozenset(name for name, row in BY_NAME.items() if row.kind in CHEAP_KINDS)
"""The primitives of those kinds."""
