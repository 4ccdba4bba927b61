"""The HTML page as text: it needs nothing from elsewhere, its data is valid and its own, and all texts are escaped."""

import json
import re
from html.parser import HTMLParser
from importlib import resources

import jax.numpy as jnp
import pytest

import remat
from remat.inspect.overview import overview
from remat.report.html.page import html_report, html_text

W = [jnp.ones((16, 16))] * 3
X = jnp.ones((16, 16))
BAD = "</script><script>alert(1)</script>&amp;<!--"


def loss(ws, x):
    for w in ws:
        x = jnp.sin(remat.checkpoint_name(x @ w, "product"))
    return (x**2).sum()


class Page(HTMLParser):
    """The elements of a page with their attributes, and the texts of its scripts and of everything else."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.scripts, self.words = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "input", "br"):
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        else:
            self.words.append(data)

    @property
    def data(self):
        return json.loads(self.scripts[0])

    def attributes(self, name):
        return [attributes[name] for _, attributes in self.elements if name in attributes]


@pytest.fixture(scope="module")
def found():
    return overview(loss, (W, X), {}, policy="dots", policies=[None, "names:nobody"], target="cpu")


def test_it_is_one_page_that_needs_nothing_else(found):
    text = html_text(found)
    page = Page(text)
    assert text.startswith("<!doctype html>")
    assert page.open == []
    assert [a["type"] for tag, a in page.elements if tag == "script" and a] == ["application/json"]
    assert len(page.scripts) == 2
    assert page.attributes("src") == []
    assert all(link.startswith("#") or link == "data:," for link in page.attributes("href"))
    addresses = set(re.findall(r"https?://[^\s\"']+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the name of SVG, which is not fetched
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|\beval\(|innerHTML", text)
    (policy,) = [a["content"] for tag, a in page.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")


def test_ids_that_the_scripts_ask_for_are_there(found):
    page = Page(html_text(found))
    ids = page.attributes("id")
    assert len(set(ids)) == len(ids)
    made = set(re.findall(r'\bid: "([\w-]+)"', page.scripts[1]))
    assert set(re.findall(r'getElementById\("([\w-]+)"\)', page.scripts[1])) <= {*ids, *made}
    assert {link[1:] for link in page.attributes("href") if link.startswith("#")} <= set(ids)


def test_totals_are_those_of_the_data(found):
    page = Page(html_text(found))
    shown = {a["data-total"]: int(a["data-bytes"]) for _, a in page.elements if "data-total" in a}
    assert shown == {k: v for k, v in page.data["totals"].items() if k in shown}
    assert set(shown) == {"kept_bytes", "peak_bytes", "set_aside_bytes", "argument_bytes"}
    assert page.data == json.loads(found.to_json())
    assert shown["kept_bytes"] == remat.saved_residuals(loss, W, X, policy="dots", argnums=0).new_bytes
    words = " ".join(page.words)
    assert "nothing was compiled, run or measured" in words
    assert "names:nobody" in words


def test_texts_are_escaped():
    def bad(params, x):
        return jnp.sin(remat.checkpoint_name(x @ params[BAD], BAD)).sum()

    bad.__name__ = f"bad{BAD}"
    args = {BAD: X}, X
    text = html_report(bad, *args, policy=remat.policies.names(BAD), policies=[], target="cpu")
    page = Page(text)
    assert text.count("<script") == 2
    assert text.count("</script>") == 2
    assert "<!--" not in text
    assert len(page.scripts) == 2
    assert BAD in page.data["function"]
    assert any(BAD in row[0] for row in page.data["residuals"]["rows"])
    assert BAD in "".join(page.words)


def test_braces_in_a_name_are_not_filled():
    def braces(x):
        return jnp.sin(x).sum()

    braces.__name__ = "{{data}}"
    page = Page(html_report(braces, X, policies=[], target="cpu"))
    assert "{{data}}" in "".join(page.words)


def test_measured_figures_are_called_so(found):
    measured = overview(loss, (W, X), {}, policies=[], target="cpu", measure=True)
    page = Page(html_text(measured))
    shown = {a["data-total"]: int(a["data-bytes"]) for _, a in page.elements if "data-total" in a}
    assert shown["measured_bytes"] == remat.measure(remat.value_and_grad(loss), W, X, target="cpu").live_bytes
    assert "measured, by compiling" in " ".join(page.words)
    assert "measured, by compiling" not in html_text(found)


def test_all_files_of_the_page_are_used():
    text = resources.files("remat.report.html").joinpath("template.html").read_text("utf-8")
    files = {f.name for f in resources.files("remat.report.html").iterdir() if not f.name.startswith("__")}
    scripts = remat.report.html.page.SCRIPTS
    assert files == {"page.py", "template.html", "style.css", *scripts}
    assert set(re.findall(r"\{\{(\w+)\}\}", text)) >= {"style", "script", "data"}
