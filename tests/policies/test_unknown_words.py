"""Words that are no policies: understood where their meaning is clear, and otherwise errors that say what to write."""

import re

import pytest

import remat
from remat import policies
from remat.errors import PolicyError
from remat.policies.maxtext import RECIPES


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("save_only_these_names:act", "names:act"),
        ("save_only_these_names:'a,b',=3", "names:'a,b',=3"),
        ("save_any_names_but_these:a*", "names_but:a*"),
        ("save_anything_except_these_names:a,b", "except:a,b"),
        ("offload_dot_with_no_batch_dims:device->pinned_host", "offload_dots:pinned_host"),
        ("offload_dot_with_no_batch_dims:device,pinned_host", "offload_dots:pinned_host"),
        ("scan_body:(dots|save_only_these_names:act)", "scan_body:(dots|names:act)"),
        ("checkpoint_dots_with_no_batch_dims", "dots_no_batch"),
    ],
)
def test_names_of_jax_s_constructors_are_understood(theirs, ours):
    assert policies.parse(theirs) == policies.parse(ours)
    assert str(policies.parse(theirs)) == str(policies.parse(ours))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("save_only_these_names", ("needs an argument", "'names:a,b'")),
        ("save_only_these_names('a')", ("needs an argument", "'names:a,b'")),
        ("save_and_offload_only_these_names:a", ("which of the names are moved", "'offload:z:saved=y'")),
        ("save_from_both_policies:dots,nothing", ("which two policies", "'dots|names:a'")),
        ("policies.dots", ("Write 'dots', without what stands before it.",)),
        ("dots|jax.checkpoint_policies.save_only_these_names:a", ("Write 'save_only_these_names', without",)),
        ("act", ("no policy is called 'act'. If it is the name that checkpoint_name gives, write 'names:act'.",)),
        ("*_proj", ("write 'names:*_proj'",)),
        ("q,k", ("If these are names", "write 'names:q,k'")),
        ("dotz", ("Did you mean 'dots'?", "write 'names:dotz'")),
        ("save_only_these_name:a", ("Did you mean 'save_only_these_names'?",)),
        ("scan_body:act", ("(character 11 of 'scan_body:act')", "write 'names:act'")),
    ],
)
def test_what_to_write(text, parts):
    with pytest.raises(PolicyError) as caught:
        policies.parse(text)
    assert all(part in str(caught.value) for part in parts), caught.value


def test_a_word_with_an_argument_is_no_name():
    with pytest.raises(PolicyError) as caught:
        policies.parse("nmaes:a")
    assert "checkpoint_name" not in str(caught.value)


MAXTEXT = {
    "full": "nothing",
    "save_out_proj": "names:out_proj",
    "save_qkv_proj": "names:query_proj,key_proj,value_proj,kv_proj,qkv_proj",
    "save_dot_except_mlp": "names:query_proj,key_proj,value_proj,kv_proj,qkv_proj,out_proj",
    "save_dot_except_mlpwi": "names:query_proj,key_proj,value_proj,kv_proj,qkv_proj,out_proj,mlpwo",
    "save_dot_with_context_except_mlp": "names:query_proj,key_proj,value_proj,kv_proj,qkv_proj,out_proj,context",
    "minimal": "names:query_proj,key_proj,value_proj,kv_proj,qkv_proj,out_proj,mlpwi,mlpwi_0,mlpwi_1,mlpwo",
    "minimal_with_context": "names:query_proj,key_proj,value_proj,kv_proj,qkv_proj,out_proj,mlpwi,mlpwi_0,mlpwi_1,"
    "mlpwo,context",
    "qkv_proj_offloaded": "offload:query_proj,key_proj,value_proj,kv_proj",
    "minimal_offloaded": "offload:query_proj,key_proj,value_proj,kv_proj,qkv_proj,out_proj,mlpwi,mlpwi_0,mlpwi_1,mlpwo",
    "custom": "offload:z:saved=y",
}


@pytest.mark.parametrize(("word", "ours"), MAXTEXT.items(), ids=MAXTEXT)
def test_maxtext_s_words_say_what_they_mean(word, ours):
    for text in (word, f"scan_body:{word}"):
        with pytest.raises(PolicyError, match="is a word of MaxText's and no policy here") as caught:
            policies.parse(text)
        assert f'Write "{ours}"' in str(caught.value)


@pytest.mark.parametrize("word", RECIPES)
def test_what_is_to_be_written_instead_is_a_policy(word):
    """Every text in quotes can be parsed, and stands for names that were not forgotten on the way."""
    written = re.findall(r'"([^"]+)"', RECIPES[word].write)
    assert written
    for text in written:
        assert policies.parse(str(policies.parse(text))) == policies.parse(text)
    assert word not in policies.__all__


def test_the_word_none():
    with pytest.raises(PolicyError, match="policy=None in Python"):
        remat.grad(lambda x: x * x, policy="none")
