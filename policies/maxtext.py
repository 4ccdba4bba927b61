"""What the words of MaxText's `remat_policy` mean there, as data, and what to write here in their place.

MaxText's words are recipes over names that its layers give their values. They are errors here and no policies: the
names are those of MaxText's layers, and `full` means the opposite of what it seems to say.
"""

from __future__ import annotations

from dataclasses import dataclass

_QKV = ("query_proj", "key_proj", "value_proj", "kv_proj", "qkv_proj")
_PROJECTIONS = (*_QKV, "out_proj")
_FIRST_OF_MLP = ("mlpwi", "mlpwi_0", "mlpwi_1")
_ALL = (*_PROJECTIONS, *_FIRST_OF_MLP, "mlpwo")


@dataclass(frozen=True)
class Recipe:
    """A word of MaxText's: what it does there, to be read after the word, and what to write here."""

    means: str
    write: str
    is_policy: bool = True
    """Whether what to write is a policy, which may stand in another."""

    @classmethod
    def keeping(cls, what: str, *names: str) -> Recipe:
        return cls(f"keeps {what} and recomputes the rest", f'"names:{",".join(names)}"')

    @classmethod
    def moving(cls, what: str, *names: str) -> Recipe:
        return cls(
            f"moves {what} to the host's memory and recomputes the rest",
            f'"offload:{",".join(names)}"',
        )


_MINIMAL_WITH_CONTEXT = Recipe.keeping("all projections and what attention returns", *_ALL, "context")

RECIPES = {
    "full": Recipe("recomputes everything in a layer and keeps only its inputs", '"nothing"'),
    "none": Recipe(
        "is no checkpoint: all is kept that the backward pass needs", 'policy=None in Python, or "everything"', False
    ),
    "minimal": Recipe.keeping("the results of all projections", *_ALL),
    "minimal_with_context": _MINIMAL_WITH_CONTEXT,
    "minimal_flash": _MINIMAL_WITH_CONTEXT,
    "minimal_with_quantization": Recipe.keeping("all projections and quantized values", *_ALL, "quantization"),
    "minimal_with_context_and_quantization": Recipe.keeping(
        "all projections, what attention returns and quantized values", *_ALL, "context", "quantization"
    ),
    "save_dot_with_context_except_mlp": Recipe.keeping(
        "the projections of attention and what it returns", *_PROJECTIONS, "context"
    ),
    "save_dot_except_mlpwi": Recipe.keeping("all projections but the first ones of the MLP", *_PROJECTIONS, "mlpwo"),
    "save_dot_except_mlp": Recipe.keeping("the projections of attention", *_PROJECTIONS),
    "save_qkv_proj": Recipe.keeping("the projections to query, key and value", *_QKV),
    "save_out_proj": Recipe.keeping("the output projection of attention", "out_proj"),
    "qkv_proj_offloaded": Recipe.moving("the projections to query, key and value", *_QKV[:4]),
    "minimal_offloaded": Recipe.moving("the results of all projections", *_ALL),
    "custom": Recipe(
        "takes for each name the place that the config says: remat, device or offload",
        '"offload:z:saved=y", where z are the names with offload and y those with device, separated by commas '
        '("names:y" if none is moved)',
    ),
}
"""Every word of MaxText's, as of August 2026."""


def maxtext_text(word: str) -> str | None:
    """The explanation of a word of MaxText's; None for any other word."""
    recipe = RECIPES.get(word)
    if recipe is None:
        return None
    around = "; on a whole loss whose layers run in a scan, put scan_body: before it" if recipe.is_policy else ""
    return (
        f"{word!r} is a word of MaxText's and no policy here. There, on each layer, it {recipe.means}. Write "
        f"{recipe.write}{around}."
    )
