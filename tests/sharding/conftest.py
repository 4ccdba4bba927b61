"""These tests need eight CPU devices, so they run in a process of their own, which `tests/test_sharding.py` starts."""

import os

import remat.ir.check

remat.ir.check.enabled = True
EIGHT = "--xla_force_host_platform_device_count=8"
collect_ignore_glob = [] if EIGHT in os.environ.get("XLA_FLAGS", "") else ["test_*.py"]
