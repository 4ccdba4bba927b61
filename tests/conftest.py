"""Settings for all tests: programs are type-checked after every transformation, and there are two CPU devices."""

import jax

import remat.ir.check

remat.ir.check.enabled = True
jax.config.update("jax_num_cpu_devices", 2)
