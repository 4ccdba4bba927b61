"""The HTML page in a browser, where Playwright and a Chromium are installed: it draws, sorts, filters and moves."""

import shutil
from collections import Counter
from functools import partial

import jax
import jax.numpy as jnp
import pytest

import remat
from remat.inspect.overview import overview
from remat.inspect.program_lines import programs_data
from remat.report.html.page import html_text
from remat.units import bytes_text

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
BAD = "<script>document.title = 'run'</script>"
X = jax.ShapeDtypeStruct((64, 64), jnp.float32)
ARGS = {"w": [X] * 4, "loop": jax.ShapeDtypeStruct((5, 64, 64), jnp.float32)}, X


def loss(params, x):
    for i, w in enumerate(params["w"]):
        with jax.named_scope(f"layer{i}"):
            x = jnp.sin(remat.checkpoint_name(x @ w, f"product{i}"))
    x, _ = jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), remat.checkpoint_name(x, BAD), params["loop"])
    return (x**2).sum()


@pytest.fixture(scope="module")
def found():
    policy = remat.policies.names("product*", BAD)
    return overview(loss, ARGS, {}, policy=policy, policies=[None, "nothing"], target="cpu", budget="100KiB")


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield opened
        opened.close()


def test_a_value_in_lines_left_out_is_said_to_be_there(browser, found, tmp_path, monkeypatch):
    monkeypatch.setattr("remat.inspect.overview.programs_data", partial(programs_data, limit=10))
    file = tmp_path / "cut.html"
    file.write_text(html_text(found))
    page = browser.new_page()
    page.goto(file.as_uri())
    assert page.locator("#programs div.fold").count() == 2
    name = next(n for n, r in zip(found.programs.kept, found.residuals, strict=True) if r.name == "product2")
    page.locator("#kept-table").get_by_role("button", name=name, exact=True).click()
    assert "that are left out" in page.locator("#programs-note").inner_text()
    page.close()


@pytest.fixture
def opened(browser, found, tmp_path):
    """The page at a width, and what the browser complained of and asked for."""
    file = tmp_path / "report.html"
    file.write_text(html_text(found))
    pages = []

    def open_at(width, scheme="light"):
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.complaints = []
        page.on("console", lambda message: page.complaints.append(message.text))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("request", lambda r: r.url.startswith(("file:", "data:")) or page.complaints.append(r.url))
        page.goto(file.as_uri())
        page.wait_for_selector("#timeline-chart svg")
        pages.append(page)
        return page

    yield open_at
    for page in pages:
        page.close()


@pytest.mark.parametrize("width", [360, 800, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_and_complains_of_nothing(opened, width, scheme):
    page = opened(width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("#policies svg .point.policy").count() >= 2
    assert page.locator("#programs .code-line").count() > 20
    colors = page.evaluate("[document.body, document.querySelector('section')].map((e) => getComputedStyle(e).color)")
    assert all((max(map(int, c[4:-1].split(","))) > 128) == (scheme == "dark") for c in colors)
    assert page.complaints == []


def test_names_are_texts(opened, found):
    page = opened(1400)
    assert page.title() != "run"
    assert page.locator("section script").count() == 0
    assert BAD in page.locator("#kept-table").inner_text()


def cells(page, column):
    return page.locator(f"#kept-table tbody tr:not(.group) td:nth-child({column})").all_inner_texts()


def test_the_table_is_sorted(opened, found):
    page = opened(1400)
    sizes = sorted((r.total_bytes for r in found.residuals if r.is_new), reverse=True)
    assert len(cells(page, 1)) == len(sizes)
    assert int(page.locator("#kept-total").get_attribute("data-bytes")) == sum(sizes) == found.totals["kept_bytes"]
    largest = cells(page, 4)
    head = page.locator("#kept-table th", has_text="bytes")
    assert head.get_attribute("aria-sort") == "descending"
    head.get_by_role("button").focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert cells(page, 4) == largest[::-1]
    page.get_by_role("button", name="line").click()
    lines = cells(page, 7)
    assert lines == sorted(lines)
    assert head.get_attribute("aria-sort") == "none"


def test_the_table_is_filtered_and_grouped(opened, found):
    page = opened(1400)
    page.locator("#kept-filter").fill("LAYER2")
    wanted = [r for r in found.residuals if r.is_new and "layer2" in r.scope]
    assert len(cells(page, 1)) == len(wanted) > 0
    assert int(page.locator("#kept-total").get_attribute("data-bytes")) == sum(r.total_bytes for r in wanted)
    page.locator("#kept-filter").fill("")
    page.locator("#kept-group").select_option("scope")
    assert page.locator("#kept-table tr.group").count() == len(found.residuals.groups)
    page.locator("#kept-held").check()
    assert len(cells(page, 1)) == len(found.residuals)
    assert int(page.locator("#kept-total").get_attribute("data-bytes")) == found.totals["kept_bytes"]


def step(page):
    return int(page.locator("#timeline-chart").get_attribute("aria-valuenow"))


def test_arrow_keys_move_through_the_steps(opened, found):
    page, timeline = opened(1400), found.timeline
    assert step(page) == timeline.peak_step
    page.locator("#timeline-chart").focus()
    for key, wanted in [("Home", 0), ("ArrowLeft", 0), ("ArrowRight", 1), ("End", len(timeline.bytes) - 1)]:
        page.keyboard.press(key)
        assert step(page) == wanted
    page.keyboard.press("p")
    page.keyboard.press("ArrowLeft")
    wanted = timeline.peak_step - 1
    page.locator("#timeline-step strong", has_text=f"Step {wanted}").wait_for()
    alive = timeline.alive_at(wanted)
    assert f"alive in {len(alive)} array" in page.locator("#timeline-step").inner_text()
    groups = Counter()
    for a in alive:
        groups[a.type, a.bytes, a.times, a.name, a.result, a.operation, a.made, a.source] += a.bytes
    largest = [bytes_text(size) for _, size in groups.most_common(12)]
    assert page.locator("#timeline-step tbody td:nth-child(1)").all_inner_texts() == largest


def test_pointing_chooses_a_step(opened, found):
    page = opened(800)
    box = page.locator("#timeline-chart").bounding_box()
    page.mouse.move(box["x"] + 67, box["y"] + 100)
    assert step(page) == 0
    page.mouse.move(box["x"] + box["width"] - 15, box["y"] + 100)
    assert step(page) == len(found.timeline.bytes) - 1


def test_a_kept_value_is_found_on_both_sides(opened):
    page = opened(1400)
    name = page.locator("#kept-table tbody tr td:first-child button").first.inner_text()
    page.locator("#kept-table tbody tr td:first-child button").first.click()
    for side in page.locator("#programs .code").all():
        pinned = side.locator(".pinned").all_inner_texts()
        assert pinned
        assert set(pinned) == {name}
    page.locator("#programs .code .pinned").first.click()
    assert page.locator("#programs .pinned").count() == 0
