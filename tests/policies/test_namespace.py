"""What `remat` and `remat.policies` show: public names, no implementation modules; and a module is no policy."""

import importlib
import types

import jax.numpy as jnp
import pytest

import remat
from remat import policies
from remat.errors import PolicyTypeError

WORDS = ["everything", "nothing", "dots", "dots_no_batch", "burn"]


@pytest.mark.parametrize("package", [remat, policies])
def test_dir_shows_public_names_and_no_modules(package):
    shown = dir(package)
    assert [n for n in shown if isinstance(getattr(package, n), types.ModuleType)] == ["policies"][: package is remat]
    assert set(package.__all__) <= set(shown)
    assert all(not n.startswith("_") or n == "__version__" for n in shown)


def test_what_users_need_is_there():
    assert {"grad", "value_and_grad", "vjp", "checkpoint", "checkpoint_name", "saved_residuals"} <= set(dir(remat))
    jax_names = {n for n in dir(importlib.import_module("jax").checkpoint_policies) if not n.startswith("_")}
    assert jax_names <= set(dir(policies))


def test_a_star_import_brings_the_public_names():
    namespace = {}
    exec("from remat import *\nfrom remat.policies import *", namespace)
    assert namespace["grad"] is remat.grad
    assert namespace["dots_saveable"] is policies.dots_saveable


@pytest.mark.parametrize("word", WORDS)
def test_words_are_the_policies_and_not_the_files(word):
    assert getattr(policies, word) == policies.parse(word)
    remat.checkpoint(jnp.sin, policy=getattr(policies, word))


def test_names_makes_a_policy():
    assert policies.names("a", "b") == policies.parse("names:a,b")
    with pytest.raises(PolicyTypeError, match=r"Write policies\.save_only_these_names\(\.\.\.\)"):
        remat.checkpoint(jnp.sin, policy=policies.names)


@pytest.mark.parametrize("module", ["remat.policies", "remat.policies.dots", "remat.policies.scope", "jax.numpy"])
def test_a_module_is_no_policy(module):
    for use in (lambda p: remat.checkpoint(jnp.sin, policy=p), lambda p: policies.dots | p, policies.parse):
        with pytest.raises(PolicyTypeError, match=rf"the module {module} is no policy\. .*policies\.dots.*'names:a,b'"):
            use(importlib.import_module(module))
