"""Gradients under a policy, with the signatures of other libraries; one module each, imported by who uses it."""
