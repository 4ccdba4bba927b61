"""Real text that comes with every Python: the source of modules of its standard library, as character tokens."""

from __future__ import annotations

import _pydecimal
import argparse
import inspect
import typing

import numpy as np

FIRST, LAST = " ", "~"
VOCABULARY = 1 + ord(LAST) - ord(FIRST) + 1  # the newline, then printable ASCII


def corpus() -> str:
    """About half a megabyte of Python source."""
    return "\n".join(inspect.getsource(module) for module in (argparse, inspect, typing, _pydecimal))


def encode(text: str) -> np.ndarray:
    """Characters as tokens: newline is 0; printable ASCII follows; what is neither becomes `?`."""
    codes = np.frombuffer(text.encode("ascii", "replace"), np.uint8).astype(np.int32)
    tokens = codes - ord(FIRST) + 1
    unknown = (codes < ord(FIRST)) | (codes > ord(LAST))
    tokens[unknown] = ord("?") - ord(FIRST) + 1
    tokens[codes == ord("\n")] = 0
    return tokens


def decode(tokens: np.ndarray) -> str:
    return "".join("\n" if t == 0 else chr(ord(FIRST) - 1 + t) for t in tokens)


def sample_batch(random: np.random.Generator, tokens: np.ndarray, count: int, length: int) -> np.ndarray:
    """`count` random pieces of the text, each `length` tokens long."""
    starts = random.integers(0, len(tokens) - length + 1, count)
    return tokens[starts[:, None] + np.arange(length)]
