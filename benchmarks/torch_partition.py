"""What torch's partitioner does with a loss at an `activation_memory_budget`, as numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import jax
import torch
import torch._functorch.config
from partition import Partition, Step, live_peak
from torch import fx
from torch._decomp import get_decompositions
from torch._functorch.aot_autograd import aot_function
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.fx.node import map_arg
from torch.utils.flop_counter import flop_registry

DERIVATIVES = [torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward]
"""Operations that are several in JAX. `torch.compile` takes them apart before it cuts a graph, and so is done here."""


def partition_of(loss: Callable[..., Any], arguments: tuple[Any, ...], budget: float) -> Partition:
    """Trace a loss of trees of tensors, differentiate it, and let torch cut it at a budget. Nothing is compiled."""
    leaves, tree = jax.tree.flatten(arguments)
    found: list[Partition] = []

    def cut(joint: Any, inputs: Any, **settings: Any) -> tuple[Any, Any]:
        plain = product_flops(joint.graph)
        forward, backward = min_cut_rematerialization_partition(joint, inputs, **settings)
        saved = saved_memories(forward.graph, settings["num_fwd_outputs"])
        found.append(
            Partition(
                saved_bytes=sum(saved.values()),
                recomputed_flops=product_flops(forward.graph) + product_flops(backward.graph) - plain,
                plain_flops=plain,
                backward_peak=backward_peak(backward.graph, saved),
            )
        )
        return forward, backward

    def as_it_is(gm: Any, example_inputs: Any) -> Any:
        return gm

    with torch._functorch.config.patch(activation_memory_budget=budget):
        flat = aot_function(
            lambda *flat: loss(*jax.tree.unflatten(tree, flat)),
            fw_compiler=as_it_is,
            bw_compiler=as_it_is,
            partition_fn=cut,
            decompositions=cast(Any, get_decompositions(DERIVATIVES)),
        )
        flat(*leaves)
    return found[0]


def product_flops(graph: fx.Graph) -> int:
    """Operations in products and convolutions, by torch's own registry."""
    total = 0
    for node in graph.nodes:
        rule = flop_registry.get(getattr(node.target, "overloadpacket", None)) if node.op == "call_function" else None
        if rule is not None:
            args, kwargs = map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
            total += int(rule(*args, **kwargs, out_val=node.meta["val"]))
    return total


def saved_memories(graph: fx.Graph, outputs: int) -> dict[Any, int]:
    """The memories that a forward graph hands to the backward graph, with their bytes, without those of its inputs:
    torch counts a transposed weight as saved, though it takes nothing. Of a memory of which views are saved, what these
    need counts, at most the whole of it."""
    inputs = {memory_of(n) for n in graph.nodes if n.op == "placeholder"}
    (result,) = next(n for n in graph.nodes if n.op == "output").args
    saved: dict[Any, int] = {}
    for node in dict.fromkeys(n for n in result[outputs:] if isinstance(n, fx.Node)):
        value, memory = node.meta["val"], memory_of(node)
        if isinstance(value, torch.Tensor) and memory not in inputs:
            saved[memory] = min(saved.get(memory, 0) + value.nbytes, value.untyped_storage().nbytes())
    return saved


def memory_of(node: fx.Node) -> Any:
    """What a tensor and its views have in common."""
    value = node.meta["val"]
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else node


def backward_peak(graph: fx.Graph, saved: dict[Any, int]) -> int:
    given = {memory_of(n): n.meta["val"].nbytes for n in graph.nodes if n.op == "placeholder" and "tangents" in n.name}
    (result,) = next(n for n in graph.nodes if n.op == "output").args
    returned = [memory_of(n) for n in result if isinstance(n, fx.Node)]
    return live_peak(list(steps_of(graph)), {**saved, **given}, returned)


def steps_of(graph: fx.Graph) -> Iterator[Step]:
    known = {memory_of(n) for n in graph.nodes if n.op == "placeholder"}
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        memory, value = memory_of(node), node.meta["val"]
        is_new = isinstance(value, torch.Tensor) and memory not in known
        makes = ((memory, value.untyped_storage().nbytes()),) if is_new else ()
        yield Step((*map(memory_of, node.all_input_nodes), memory), makes)
        known.add(memory)
