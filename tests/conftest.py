"""Settings for all tests: programs are type-checked after every transformation, there are two CPU devices, and machine
code is not optimized.

The last makes most tests twice as fast, since they compile small programs that run once. What XLA makes of a program
(fusions, buffers) stays as it is."""

import jax

import remat.ir.check

remat.ir.check.enabled = True
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_disable_most_optimizations", True)
