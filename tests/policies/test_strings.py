"""The string form of policies: `parse(str(policy)) == policy`, and what cannot be read says why and where."""

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remat import policies
from remat.errors import PolicyError, RematError
from remat.ir.primitive_table import BY_NAME

MARKS = ",:|&()@=->'\"\\ \n#"
TEXT = st.text(alphabet=MARKS + "ab", max_size=5) | st.text(max_size=5)
LITERALS = st.recursive(
    st.integers()
    | st.none()
    | st.booleans()
    | st.binary(max_size=3)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.tuples(inner, TEXT),
    max_leaves=3,
)
NAMES = st.lists(TEXT | LITERALS, max_size=4)
MEMORIES = st.sampled_from(["device", "pinned_host", "unpinned_host"])
PRIMITIVES = st.lists(st.sampled_from(sorted(BY_NAME)), max_size=4, unique=True)


@st.composite
def offloading(draw):
    saved, offloaded = draw(NAMES), draw(NAMES)
    return policies.save_and_offload_only_these_names(
        names_which_can_be_saved=saved,
        names_which_can_be_offloaded=[n for n in offloaded if n not in saved],
        offload_src=draw(MEMORIES),
        offload_dst=draw(MEMORIES),
    )


@st.composite
def moved(draw):
    names = draw(PRIMITIVES)
    cut = draw(st.integers(0, len(names)))
    return policies.balanced(names[:cut], names[cut:])


SINGLE = (
    st.sampled_from(
        [
            policies.everything_saveable,
            policies.nothing_saveable,
            policies.dots_saveable,
            policies.dots_with_no_batch_dims_saveable,
            policies.burn_balanced(),
            policies.burn_no_checkpointing(),
        ]
    )
    | NAMES.map(lambda names: policies.SaveOnlyTheseNames(frozenset(names)))
    | NAMES.map(lambda names: policies.SaveAnyNamesButThese(frozenset(names)))
    | NAMES.map(lambda names: policies.SaveAnythingExceptTheseNames(frozenset(names)))
    | st.builds(policies.offload_dot_with_no_batch_dims, MEMORIES, MEMORIES)
    | offloading()
    | moved()
)
SCOPES = TEXT.filter(bool) | st.text(alphabet=string.ascii_lowercase + "/._<>", min_size=1)
POLICIES = st.recursive(
    SINGLE,
    lambda inner: (
        st.builds(lambda a, b: a | b, inner, inner)
        | st.builds(lambda a, b: a & b, inner, inner)
        | st.builds(policies.within, SCOPES, inner)
        | st.builds(policies.scan_body, inner)
        | st.builds(policies.segments, inner)
        | st.builds(policies.substituting, inner)
    ),
    max_leaves=6,
)


@given(POLICIES)
@settings(max_examples=400, deadline=None)
def test_a_policy_survives_its_string(policy):
    read = policies.parse(str(policy))
    assert read == policy
    assert hash(read) == hash(policy)
    assert str(read) == str(policy)


@given(POLICIES)
@settings(max_examples=200, deadline=None)
def test_repr_builds_a_policy_again(policy):
    assert eval(repr(policy), dict(vars(policies))) == policy


TOKENS = st.sampled_from([*MARKS, "names", "offload", "within", "scan_body", "dots", "balanced:compute_bound=exp"])


@given(st.lists(TOKENS, max_size=9))
@settings(max_examples=400, deadline=None)
def test_every_text_is_a_policy_or_an_explained_error(parts):
    try:
        policy = policies.parse("".join(parts))
    except RematError:
        return
    assert policies.parse(str(policy)) == policy


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("names: a , b", policies.save_only_these_names("a", "b")),
        ("names:a b", policies.save_only_these_names("a b")),
        ("names:'a,b',\"c'd\"", policies.save_only_these_names("a,b", "c'd")),
        ("names:3,=3", policies.save_only_these_names("3", 3)),
        ("names:=(1, 'x,|')|dots", policies.SaveOnlyTheseNames(frozenset({(1, "x,|")})) | policies.dots_saveable),
        ("except:()", policies.save_anything_except_these_names()),
        ("offload_dots:device->pinned_host", policies.offload_dot_with_no_batch_dims("device", "pinned_host")),
        ("within:encoder/layer_0:dots", policies.within("encoder/layer_0", "dots")),
        ("within:f.<locals>.g:names:a", policies.within("f.<locals>.g", "names:a")),
        ("within:'jvp(f)':dots", policies.within("jvp(f)", "dots")),
        ("within:a:dots|nothing", policies.within("a", "dots") | policies.nothing_saveable),
        ("within:a:(dots|nothing)", policies.within("a", policies.dots_saveable | policies.nothing_saveable)),
        ("scan_body:within:a:dots & names:b", policies.scan_body("within:a:dots") & policies.parse("names:b")),
        (
            "dots|names:a&burn",
            policies.dots_saveable | (policies.save_only_these_names("a") & policies.burn_balanced()),
        ),
        ("((dots))", policies.dots_saveable),
    ],
)
def test_readings(text, policy):
    assert policies.parse(text) == policy


def test_offload_forms():
    def offload(saved, moved, source="device", destination="pinned_host"):
        return policies.save_and_offload_only_these_names(
            names_which_can_be_saved=saved,
            names_which_can_be_offloaded=moved,
            offload_src=source,
            offload_dst=destination,
        )

    assert policies.parse("offload:z") == offload([], ["z"])
    assert policies.parse("offload:z@unpinned_host") == offload([], ["z"], destination="unpinned_host")
    assert policies.parse("offload:z@pinned_host->device") == offload([], ["z"], "pinned_host", "device")
    assert policies.parse("offload:y,z : saved = a,b") == offload(["a", "b"], ["y", "z"])
    assert policies.parse("within:m:offload:z:saved=y|dots") == (
        policies.within("m", offload(["y"], ["z"])) | policies.dots_saveable
    )


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("names:a:b", ("found ':b' at character 8", "names:'a,b'")),
        ("names:it's", ('found "\'s" at character 9', "quoted")),
        ("names:a,", ("expected a name", "it ends there", "names:()")),
        ("names:(a)", ("expected a name", "'(a)' at character 7")),
        ("names:=x", ("'x' is no Python literal",)),
        ("dots dots", ("expected '|', '&' or the end", "'dots' at character 6")),
        ("dots&&nothing", ("nothing on one side of '&'", "character 6")),
        ("()", ("a policy inside the parentheses", "character 2")),
        ("dots|(nothing", ("do not match", "character 14")),
        ("scan_body:within:a:dotz", ("'dotz' (character 20", "Did you mean 'dots'?")),
        ("within:jvp(f):dots", ("a scope and a policy", "'(f):dots' at character 11", "within:'jvp(attention)':dots")),
        ("offload:a@", ("expected a memory space", "it ends there")),
        ("offload_dots:device->", ("to move to", "it ends there")),
        ("offload:a:saved=a", ("'a' are in both",)),
        ("balanced:compute_bound=exp:compute_bound=log", ("each once", "character 41")),
    ],
)
def test_malformed_strings_say_where(text, parts):
    with pytest.raises(PolicyError) as caught:
        policies.parse(text)
    assert text in str(caught.value) or "are in both" in str(caught.value)
    assert all(part in str(caught.value) for part in parts), caught.value


@pytest.mark.parametrize(
    "make",
    [
        lambda: policies.Either((policies.dots_saveable,)),
        lambda: policies.Both(()),
        lambda: policies.Within("", policies.dots_saveable),
        lambda: policies.Balanced(frozenset({"exq"})),
        lambda: policies.Balanced(frozenset({"exp"}), frozenset({"exp"})),
    ],
)
def test_classes_refuse_what_has_no_string(make):
    with pytest.raises(RematError):
        make()


def test_combinations_are_flat():
    a, b, c = policies.dots_saveable, policies.nothing_saveable, policies.everything_saveable
    assert policies.Either((policies.Either((a, b)), c)) == a | b | c == a | (b | c)
    assert policies.Both((a, policies.Both((b, c)))) == a & b & c
