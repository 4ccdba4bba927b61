"""Burn's checkpointing strategies: its operations on the tape, its bookkeeping, its two strategies as policies.

Burn decides while the forward pass runs, one operation at a time; here the same rules run over a linearized program.
What they are is told in Burn's `burn-autodiff/src/checkpoint` (0.22.1): `strategy.rs`, `builder.rs`, `base.rs`.
"""
