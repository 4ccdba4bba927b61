"""What a function costs once it is compiled for a target: bytes, FLOPs, collectives. Nothing is executed."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import jax

from remat.autodiff import value_and_grad
from remat.checkpoint import resolve_policy
from remat.errors import ArgumentError, TargetError
from remat.signature import check_callable, flatten_arguments, function_name, is_array, is_number, is_traced
from remat.targets.current import current_target, use_target
from remat.targets.hlo import parse_hlo
from remat.targets.placement import mesh_on, place
from remat.targets.target import Target, as_target
from remat.targets.topology import devices_of
from remat.targets.work import Work, work_of

# What JAX says where shardings of a function are on other devices than its arguments.
OTHER_DEVICES = ("incompatible devices", "Memory kinds passed to jax.jit does not match")


@dataclass(frozen=True)
class Collectives:
    """The collectives of one kind that one device runs: how many, and the bytes of the larger side of each."""

    kind: str
    count: int
    bytes: int


@dataclass(frozen=True)
class Measurement:
    """What a compiled program takes, of one device; all of it is measured on the compiler's result.

    **Attributes**

    - `function`, `policy`, `target`: what was compiled; `policy` is None where the function was compiled as it is.
      `devices`: how many of the target's devices the arguments are on.
    - `argument_bytes`, `output_bytes`, `temp_bytes`: arrays that go in, that come out, and all others at their worst.
      `alias_bytes` of the output take the place of (donated) arguments. `live_bytes` is `temp_bytes + output_bytes`:
      what the program adds to its arguments. `total_bytes` is what has to fit into the device's memory.
    - `host_bytes`: arrays in host memory. `code_bytes`: the program itself.
    - `peak_bytes`: the compiler's own figure of the most at one time, arguments included. None for the CPU, whose
      compiler does not mean this by it.
    - `dot_flops`: operations in products and convolutions, as they are executed: loops as often as they run, what the
      compiler merged once, what it repeats twice.
    - `collectives`: by kind.
    - `endless_loops`: how many loops run an unknown number of times; their work is counted once.
    - `kernels`: custom calls whose work is not counted, with how often each runs.
    - `compile_seconds`, `versions`.
    - `error`: what the compiler said if the program does not fit; then there are no figures.
    """

    function: str
    policy: str | None
    target: Target
    devices: int
    argument_bytes: int | None
    output_bytes: int | None
    temp_bytes: int | None
    alias_bytes: int | None
    host_bytes: int | None
    code_bytes: int | None
    peak_bytes: int | None
    dot_flops: int | None
    collectives: tuple[Collectives, ...]
    endless_loops: int
    kernels: tuple[tuple[str, int], ...]
    compile_seconds: float
    versions: tuple[tuple[str, str], ...]
    error: str | None = None

    @property
    def live_bytes(self) -> int | None:
        """`temp_bytes + output_bytes`."""
        return None if self.temp_bytes is None or self.output_bytes is None else self.temp_bytes + self.output_bytes

    @property
    def total_bytes(self) -> int | None:
        """Arguments, output and temporaries, with what is aliased counted once, and the code."""
        if self.live_bytes is None:
            return None
        return self.live_bytes + (self.argument_bytes or 0) - (self.alias_bytes or 0) + (self.code_bytes or 0)

    @property
    def fits(self) -> bool | None:
        """Whether it fits into the device's memory; None if nobody knows how much that is."""
        if self.error is not None:
            return False
        if self.total_bytes is None or self.target.memory_bytes is None:
            return None
        return self.total_bytes <= self.target.memory_bytes

    def to_json(self) -> str:
        """The same as JSON, with sizes as plain integers."""
        derived = {"live_bytes": self.live_bytes, "total_bytes": self.total_bytes, "fits": self.fits}
        pairs = {"kernels": dict(self.kernels), "versions": dict(self.versions)}
        return json.dumps({**asdict(self), **derived, **pairs}, indent=1)

    def __str__(self) -> str:
        from remat.report.measurement import measurement_text

        return measurement_text(self)


def measure(
    fun: Callable[..., Any],
    /,
    *args: Any,
    target: Target | str | None = None,
    policy: Any = None,
    compiler_options: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Measurement:
    """Compile a function for a target, which need not be there, and say what it takes.

    Regions of remat inside are made for that target. What JAX has kept of traced functions is dropped where it was made
    for another compiler, so the next calls of jitted functions trace again.

    **Arguments**

    - `fun`: any function, jitted or not; what `jax.jit` was told (donation, static arguments) holds.
    - `args`, `kwargs`: arrays, or types in their place (`jax.ShapeDtypeStruct`). Those that are sharded over a mesh are
      sharded in the same way over the target's devices; without any, the program is for one device.
    - `target`: a name such as `"tpu:v5e:2x2"`, `"gpu:H100"`, or a `remat.Target`. None is what JAX would run on.
    - `policy`: if given, `remat.value_and_grad(fun, policy=policy)` is measured, with respect to the first argument.
    - `compiler_options`: flags of XLA for this compilation, as `compile` of a lowered function takes them.

    **Returns** a `Measurement`, which prints as a table. A program that does not fit is one with an `error`.

    **Raises** `TargetError` if the target does not exist or has too few devices, `TargetUnavailableError` if its
    compiler is not installed.

    >>> import jax.numpy as jnp, remat
    >>> measured = remat.measure(lambda w, x: jnp.tanh(x @ w), jnp.ones((8, 4)), jnp.ones((16, 8)), target="cpu")
    >>> measured.argument_bytes, measured.output_bytes, measured.dot_flops
    (640, 256, 1024)
    """
    check_callable(fun, "measure")
    chosen = current_target() if target is None else as_target(target)
    devices = devices_of(chosen)
    name, text = function_name(fun), None
    if policy is not None:
        text = str(resolve_policy(policy))
        fun = value_and_grad(fun, policy=policy)
    with made_for(chosen), _mesh_of(chosen, devices):
        lowered, count = _lower(fun, args, kwargs, chosen, devices)
    start = time.perf_counter()
    error, compiled = None, None
    try:
        compiled = lowered.compile(compiler_options=dict(compiler_options or {}))
    except jax.errors.JaxRuntimeError as failure:
        if "RESOURCE_EXHAUSTED" not in str(failure):
            raise
        error = str(failure).removeprefix("RESOURCE_EXHAUSTED: ").strip()
    seconds = time.perf_counter() - start
    work = Work() if compiled is None else work_of(parse_hlo(compiled.as_text()))
    kinds = sorted(work.collectives)
    return Measurement(
        function=name,
        policy=text,
        target=chosen,
        devices=count,
        **_bytes(compiled, chosen),
        dot_flops=None if compiled is None else work.flops,
        collectives=tuple(Collectives(k, work.collectives[k], work.collective_bytes[k]) for k in kinds),
        endless_loops=work.endless,
        kernels=tuple(sorted(work.kernels.items())),
        compile_seconds=seconds,
        versions=_versions(chosen),
        error=error,
    )


@contextlib.contextmanager
def made_for(target: Target) -> Iterator[None]:
    """`use_target`, and no jaxpr that JAX kept is used for another compiler than it was made for."""
    same = target.compiler == current_target().compiler
    if not same:
        jax.clear_caches()
    try:
        with use_target(target):
            yield
    finally:
        if not same:
            jax.clear_caches()


@contextlib.contextmanager
def _mesh_of(target: Target, devices: tuple[Any, ...]) -> Iterator[None]:
    """The mesh that the user set around, on the target's devices."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        yield
    else:
        with jax.set_mesh(mesh_on(mesh, devices, target)):
            yield


def _lower(fun: Any, args: Any, kwargs: Any, target: Target, devices: tuple[Any, ...]) -> tuple[Any, int]:
    """The lowered function, and on how many devices its arguments are."""
    is_jitted = hasattr(fun, "lower")  # it may take numbers as static arguments, so these stay what they are
    arguments = flatten_arguments(fun, args, kwargs, _is_no_number if is_jitted else is_traced)
    if not arguments.leaves:
        raise ArgumentError(
            f"{arguments.function} has no array among its arguments, and the arguments say which devices to compile "
            "for. Pass an array or a jax.ShapeDtypeStruct."
        )
    placed = place(arguments.leaves, devices, target)
    count = max(len(x.sharding.device_set) for x in placed if x.sharding is not None)
    try:
        if is_jitted:
            args, kwargs = arguments.rebuild(placed)
            return fun.lower(*args, **kwargs), count

        def on_arrays(*leaves: Any) -> Any:
            args, kwargs = arguments.rebuild(leaves)
            return fun(*args, **kwargs)

        on_arrays.__name__ = arguments.function
        return jax.jit(on_arrays).lower(*placed), count
    except ValueError as error:
        if not any(text in str(error) for text in OTHER_DEVICES):
            raise
        raise TargetError(
            f"{arguments.function} names devices itself, which are not those of {target}: by the mesh of a sharding "
            "inside, of a shard_map or of jax.jit. Use the mesh that jax.set_mesh sets, which is put on the target's "
            "devices, or build yours of remat.targets.topology.devices_of(target)."
        ) from error


def _is_no_number(leaf: Any) -> bool:
    return is_array(leaf) and not is_number(leaf)


def _bytes(compiled: Any, target: Target) -> dict[str, int | None]:
    names = ("argument", "output", "temp", "alias")
    memory = None if compiled is None else compiled.memory_analysis()
    if memory is None:
        return dict.fromkeys([*(f"{n}_bytes" for n in names), "host_bytes", "code_bytes", "peak_bytes"])
    host = {n: getattr(memory, f"host_{n}_size_in_bytes") for n in names}
    peak = None if target.platform == "cpu" else getattr(memory, "peak_memory_in_bytes", 0)
    return {
        **{f"{n}_bytes": getattr(memory, f"{n}_size_in_bytes") for n in names},
        "host_bytes": host["argument"] + host["output"] + host["temp"] - host["alias"],
        "code_bytes": memory.generated_code_size_in_bytes,
        "peak_bytes": peak or None,
    }


def _versions(target: Target) -> tuple[tuple[str, str], ...]:
    plugins = {"tpu": ("libtpu",), "gpu": ("jax-cuda12-plugin", "jax-cuda13-plugin")}.get(target.platform, ())
    return versions_of("jax", "jaxlib", *plugins)


def versions_of(*packages: str) -> tuple[tuple[str, str], ...]:
    """The versions of those packages that are installed."""
    found = []
    for name in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append((name, importlib.metadata.version(name)))
    return tuple(found)
