"""Rendering: text of what `remat.inspect` found. Nothing here knows the intermediate representation."""
