"""What is kept for the backward pass and why, as data. Rendering is in `remat.report`."""
