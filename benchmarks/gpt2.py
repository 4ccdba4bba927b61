"""A net of the memory benchmark that nobody here wrote: FlaxGPT2 (12 layers, random weights) from transformers<5.

It is measured by `benchmarks/memory.py` where that package is installed (`pip install 'remat[gpt2]'`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from nets import NO_BATCH, Net, Wrap
from transformers import GPT2Config
from transformers.models.gpt2 import modeling_flax_gpt2 as gpt2

BATCH, LENGTH, WIDTH, VOCABULARY = 2, 128, 256, 2048
ORIGINAL = gpt2.FlaxGPT2Block


def config() -> GPT2Config:
    return GPT2Config(
        n_layer=12,
        n_head=4,
        n_embd=WIDTH,
        n_positions=LENGTH,
        vocab_size=VOCABULARY,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )


def loss_of(wrap: Wrap) -> Callable[..., Any]:
    """The language-model loss, with `wrap` around the call of each block, placed by replacing the block's class."""

    class Block(ORIGINAL):
        def __call__(self, hidden_states: Any, attention_mask: Any = None, **options: Any) -> Any:
            if self.is_initializing():
                return super().__call__(hidden_states, attention_mask, **options)

            def call(variables: Any, hidden_states: Any, attention_mask: Any) -> Any:
                block = ORIGINAL(self.config, dtype=self.dtype, parent=None)
                return block.apply(variables, hidden_states, attention_mask, **options)

            return wrap(call)(self.variables, hidden_states, attention_mask)

    def loss(params: Any, tokens: Any) -> Any:
        gpt2.FlaxGPT2Block = Block
        try:
            module = gpt2.FlaxGPT2LMHeadModule(config(), dtype=jnp.float32)
            tokens = tokens.astype(jnp.int32) % VOCABULARY
            ones, positions = jnp.ones_like(tokens), jnp.broadcast_to(jnp.arange(LENGTH), tokens.shape)
            logits = module.apply({"params": params}, tokens, ones, positions).logits
        finally:
            gpt2.FlaxGPT2Block = ORIGINAL
        scores = jax.nn.log_softmax(logits[:, :-1])
        return -jnp.take_along_axis(scores, tokens[:, 1:, None], axis=-1).mean()

    return loss


def parameter_shapes() -> Any:
    module = gpt2.FlaxGPT2LMHeadModule(config(), dtype=jnp.float32)
    tokens = jnp.zeros((1, LENGTH), jnp.int32)
    positions = jnp.broadcast_to(jnp.arange(LENGTH), tokens.shape)
    found = jax.eval_shape(lambda key: module.init(key, tokens, jnp.ones_like(tokens), positions), jax.random.key(0))
    return found["params"]


TOKENS = jax.ShapeDtypeStruct((BATCH, LENGTH), jnp.float32)
GPT2 = Net("FlaxGPT2, 12 layers", NO_BATCH, "dots_no_batch", loss_of, (parameter_shapes(), TOKENS))
