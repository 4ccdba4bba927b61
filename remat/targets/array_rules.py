"""What a compiler makes arrays of, and where it puts them, as data: what differs between XLA's backends.

`remat.simulate` goes by these rules. Each was chosen by comparing with compiled programs (`benchmarks/simulation.py`,
jax 0.12); the comments name the programs that show it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ArrayRules:
    """How a compiler turns values into arrays.

    **Attributes**

    - `sources_inside`: a value that is computed element by element, and that several equations read, is computed again
      inside each of them if the arrays that it follows from are at most so many times its size; else it is an array.
    - `repeats_costly`: whether that holds too for exponentials, roots and the like, and for what is summed.
    - `products_fuse`: whether products and convolutions compute what they read meanwhile, as element-wise equations do.
    - `splits_whole`: whether all parts of a split are arrays if one is.
    - `looks_up_arrays`: whether a gather reads an array, and a scatter of one element for each row is element-wise.
    - `fuses_siblings`: whether arrays that are made element by element from the same array are made together.
    - `puts_off`: whether steps that need not run yet are put off until their results are read.
    - `copies_operands`: whether products and convolutions want their operands in a certain order of dimensions.
    - `results_apart`: whether the memory of the program's results holds nothing else before.
    - `lanes`: the last dimension of arrays is padded to a multiple of this.
    """

    sources_inside: int = 0
    repeats_costly: bool = True
    products_fuse: bool = False
    splits_whole: bool = False
    looks_up_arrays: bool = False
    fuses_siblings: bool = False
    puts_off: bool = False
    copies_operands: bool = False
    results_apart: bool = False
    lanes: int = 1


_CPU = ArrayRules(
    # In an unrolled decoder without checkpoint `0.5 * (1 + tanh(h))` is no array, `tanh(h)` is one, and so is
    # `x - mean`, which is squared and summed by a library (YNNPACK).
    sources_inside=1,
    repeats_costly=False,
    # Attention's queries and keys, operands of gradients of weights: transposed copies from the start.
    copies_operands=True,
)

_TPU = ArrayRules(
    # An unrolled MLP keeps a product for each layer, and both products that read `cotangent * silu'(h)` compute that
    # from two arrays. Where one is in 32 bits (the gradient of a cross entropy), the result is an array.
    sources_inside=2,
    products_fuse=True,
    # U-Net: `split` of the gradient of a concatenation.
    splits_whole=True,
    # Decoders with a vocabulary: `take_along_axis` in the loss makes an array of the logarithms of all probabilities,
    # its derivative none.
    looks_up_arrays=True,
    # There, these logarithms and the gradient of the logits are made by one fusion, and both are alive at the peak.
    fuses_siblings=True,
    # With `jax.checkpoint` around a whole MLP, what is recomputed element by element is made layer by layer.
    puts_off=True,
    # In the buffer assignments of all nets, each result has an allocation with one value.
    results_apart=True,
    # U-Net: arrays of 64 channels take twice their bytes; ViT: 784 columns are 896.
    lanes=128,
)

_GPU = ArrayRules(
    # An unrolled MLP keeps `h` and `silu(h)` for each layer, since products (by Triton) read the latter; its derivative
    # is computed from `h`.
    sources_inside=1,
    # The same with `jax.checkpoint` around the whole: as on a TPU.
    puts_off=True,
)

ARRAY_RULES = {"cpu": _CPU, "tpu": _TPU, "gpu": _GPU}
"""The rules of each platform's compiler."""
