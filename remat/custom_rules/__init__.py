"""Functions with differentiation rules of their own: `custom_vjp`, `custom_gradient`, and `check_grads`."""
