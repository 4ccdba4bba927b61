"""How to write each policy, and in one line what it keeps: what `remat policies` lists and shells complete."""

from __future__ import annotations

import inspect

from remat.decisions import Policy
from remat.policies.parse import WITH_ARGUMENT, WORDS, parse

MEANINGS = {
    "everything": "all that the backward pass needs, as without a checkpoint",
    "dots": "results of matrix products and convolutions",
    "dots_no_batch": "results of matrix products without batch dimensions: those with weights",
    "nothing": "only the inputs; the rest is recomputed",
    "names": "values with these names (checkpoint_name); *_proj is a pattern, here and below",
    "names_but": "values with any name but these",
    "except": "everything except values with these names",
    "offload": "values with these names, in host memory",
    "offload_dots": "what dots_no_batch keeps, in host memory",
    "within": "what a policy keeps in one named scope or function",
    "scan_body": "what a policy keeps in loops, and everything outside them",
    "segments": "what a policy keeps, and the narrow places between segments, each recomputed by itself",
    "substituting": "what a policy keeps, with a sum in place of its addend and the like",
    "balanced": "results of products, reductions, gathers; element-wise operations, casts and views are recomputed. "
    "Wins where activations, norms or dropout follow products; less where most is reductions",
    "balanced:": "the same, with operations moved to the other side",
    "burn": "as Burn's BalancedCheckpointing: like balanced, but stops at constants and keeps casts",
    "burn_no_checkpointing": "as Burn's NoCheckpointing: the inputs that backward steps ask for",
}


def policy_forms() -> dict[str, str]:
    """How to write each policy, and in one line what it keeps."""
    plain = {str(policy): (str(policy), policy) for policy in WORDS.values()}
    others = {
        f"{word}:" if word in plain else word: (f"{word}:{example}", parse(f"{word}:{example}"))
        for word, (_, example) in WITH_ARGUMENT.items()
    }
    known = plain | others
    order = dict.fromkeys([*(word for word in MEANINGS if word in known), *known])
    return {known[word][0]: MEANINGS.get(word) or _first_sentence(known[word][1]) for word in order}


def _first_sentence(policy: Policy) -> str:
    text = " ".join((inspect.getdoc(type(policy)) or "").split())
    return text.partition(". ")[0].rstrip(".")
