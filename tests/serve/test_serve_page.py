"""The page of the development server, in a real browser."""

import os
import pathlib
import shutil

import pytest

from tests.support import serving_cases
from tests.support.serving_cases import NAMES
from tfxclass_serve.server import Server
from tfxclass_text import Field
from tfxclass_text import Tagger

PAGE = pathlib.Path(__file__).parents[2] / "tfxclass_serve" / "page.html"
_FLAGS = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--headless",
    "--no-first-run",
]


def chromium():
    """Path of a Chromium, or None."""
    names = ["chromium", "chromium-headless-shell", "google-chrome"]
    return next(filter(None, map(shutil.which, names)), None)


@pytest.fixture(scope="module")
def browser_page():
    api = pytest.importorskip("playwright.sync_api")
    path = chromium()
    if path is None:
        pytest.skip("no Chromium: apt-get install chromium")
    flags = _FLAGS + (["--no-sandbox"] if os.getuid() == 0 else [])
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        page = browser.new_page(viewport={"width": 420, "height": 700})
        page.set_default_timeout(20_000)
        yield page
        browser.close()


@pytest.fixture
def page(browser_page):
    """A page in which no script fails."""
    errors = []

    def note(error):
        errors.append(error)

    browser_page.on("pageerror", note)
    yield browser_page
    browser_page.remove_listener("pageerror", note)
    assert not errors


@pytest.fixture(scope="module")
def url(server):
    return f"http://127.0.0.1:{server.rest.port}/"


@pytest.fixture(scope="module")
def tagger_server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    texts = ["milk and eggs", "milk and flour", "red paint", "blue paint"] * 2
    tagger = Tagger([Field("text", max_share=1.0)], effort="fast", verbose=0)
    tagger.fit(texts, ["food", "food", "color", "color"] * 2)
    tagger.export(folder / "tags", verify=False)
    server = Server(str(folder), grpc_port=None)
    server.start()
    yield server
    server.close()


def test_a_tag_is_explained_over_rest(tagger_server):
    row = {"text": "red milk", "tag_id": 1}
    body = {"signature_name": "explain", "instances": [row]}
    status, answer = serving_cases.predict(tagger_server, body, "tags")
    assert status == 200
    (found,) = answer["predictions"]
    assert set(found["terms"]) == {"milk", "red"}
    total = found["bias"] + sum(found["contributions"])
    assert total == pytest.approx(found["logits"], abs=1e-5)


def test_a_tag_is_explained_on_a_click(page, tagger_server):
    page.goto(f"http://127.0.0.1:{tagger_server.rest.port}/")
    page.get_by_label("text").fill("red milk")
    page.get_by_role("button", name="Predict").click()
    page.get_by_role("button", name="food").click()
    page.get_by_role("heading", name="Why “food”?").wait_for()
    page.get_by_text("(bias)").wait_for()
    names = page.locator("#terms .label").all_inner_texts()
    assert set(names) == {"milk", "red", "(bias)"}
    # The answers stay.
    assert page.locator("#answers .label").count() == 2


def test_page_is_small_and_alone():
    text = PAGE.read_text(encoding="utf-8")
    assert len(text.encode()) < 20_000
    assert "http" not in text  # Loads nothing from elsewhere.


def test_a_click(page, url, tmp_path):
    page.goto(url + "?model=words")
    assert page.get_by_label("Model").input_value() == "words"
    page.get_by_label("text").fill("a tool <b>")
    page.get_by_role("button", name="Predict").click()
    page.get_by_text("3 answers, best first.").wait_for()
    answers = page.get_by_role("list", name="Answers, best first")
    assert answers.get_by_role("listitem").count() == 3
    scores = [float(x) for x in page.locator(".score").all_inner_texts()]
    assert scores == sorted(scores, reverse=True)
    assert set(page.locator(".label").all_inner_texts()) <= set(NAMES)
    widths = [x.bounding_box()["width"] for x in page.locator(".bar").all()]
    # A whole bar is a probability of 1.
    whole = page.locator(".track").first.bounding_box()["width"]
    assert [x / whole for x in widths] == pytest.approx(scores, abs=0.01)
    shot = tmp_path / "page.png"
    page.screenshot(path=shot)
    assert shot.stat().st_size > 5_000
    # It fits a phone.
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_keyboard_and_status(page, url):
    page.goto(url + "?model=words")
    page.get_by_label("text").wait_for()
    # The field has the focus; Enter asks.
    page.keyboard.type("nails")
    page.keyboard.press("Enter")
    page.get_by_role("status").get_by_text("3 answers, best").wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Predict"
    assert page.locator(".bar").first.get_attribute("aria-hidden") == "true"


def test_the_form_is_that_of_the_model(page, url):
    page.goto(url)
    model = page.get_by_label("Model")
    assert model.get_by_role("option").all_inner_texts() == [
        "numbers",
        "pairs",
        "words",
    ]
    # A vector: what is to be filled in is there.
    field = page.get_by_label("x float, 3")
    assert field.input_value() == "[0,0,0]"
    field.fill("[1, 2.5, -3]")
    page.get_by_role("button", name="Predict").click()
    page.get_by_text("3 answers, best first.").wait_for()
    # Another signature, without a ranking.
    page.get_by_label("Signature").select_option("embed")
    page.get_by_role("button", name="Predict").click()
    page.get_by_text("Done.").wait_for()
    text = page.get_by_label("Other outputs").inner_text()
    assert len(text.split(",")) == 8
    # Another model, with two inputs.
    model.select_option("pairs")
    page.get_by_label("a float, 2").fill("[1, 2]")
    page.get_by_label("b int64").fill("3")
    page.keyboard.press("Enter")
    page.get_by_text("2 answers, best first.").wait_for()
    assert page.get_by_role("heading").inner_text() == "pairs"


def test_classes_are_excluded(page, url):
    page.goto(url + "?model=pairs")
    page.get_by_label("Signature").select_option("exclude")
    field = page.get_by_label("exclude_ids int64, any")
    assert field.input_value() == "[-1]"
    page.get_by_label("a float, 2").fill("[1, 2]")
    page.get_by_label("b int64").fill("3")
    page.get_by_role("button", name="Predict").click()
    page.get_by_text("2 answers, best first.").wait_for()
    first, second = page.locator(".label").all_inner_texts()
    field.fill(f"[{first}]")
    page.get_by_role("button", name="Predict").click()
    page.locator(".label").first.filter(has_text=second).wait_for()
    # A filter may leave fewer than are asked for.
    page.get_by_label("Signature").select_option("only")
    page.get_by_label("only_ids int64, any").fill("[7]")
    page.get_by_label("a float, 2").fill("[1, 2]")
    page.get_by_label("b int64").fill("3")
    page.get_by_role("button", name="Predict").click()
    page.get_by_text("1 answer.").wait_for()
    assert page.locator(".label").all_inner_texts() == ["7"]


def test_signatures_that_a_form_can_ask(page, url):
    page.goto(url + "?model=numbers")
    page.get_by_label("x float, 3").wait_for()
    options = page.get_by_label("Signature").get_by_role("option")
    assert options.all_inner_texts() == [
        "serving_default",
        "embed",
        "full_scores",
    ]


@pytest.mark.parametrize(
    "text, told",
    [
        ("[1, 2", "No answer: “x” is not JSON: [1, 2"),
        ("[1, 2]", "No answer: Input 'x' must have shape (None, 3)"),
    ],
)
def test_what_is_wrong_is_told(page, url, text, told):
    page.goto(url + "?model=numbers")
    page.get_by_label("x float, 3").fill(text)
    page.get_by_role("button", name="Predict").click()
    page.get_by_role("alert").get_by_text(told).wait_for()


def test_no_such_model(page, url):
    page.goto(url + "?model=<b>no")
    told = "No answer: Servable not found for request: Latest(<b>no)"
    page.get_by_role("alert").get_by_text(told).wait_for()


def test_an_empty_text_is_refused(page, url):
    page.goto(url + "?model=words")
    field = page.get_by_label("text")
    field.fill(" ")
    page.get_by_role("button", name="Predict").click()
    page.get_by_role("alert").get_by_text("Type a text first.").wait_for()
    assert not page.locator(".label").count()
    # Shift and Enter begin a new line, and send nothing.
    field.fill("a tool")
    page.keyboard.press("Shift+Enter")
    assert field.input_value() == "a tool\n"
    assert not page.locator(".label").count()
