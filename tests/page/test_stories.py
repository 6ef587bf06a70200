"""The page in a real browser: what people do with it, from beginning to end. Without a browser, skipped."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from devtools.browser import CHROMIUM, chromium
from sharp_cli.data import LabelledData, Part, load
from tests.page.browser import (
    CROSS,
    NARROW,
    ONE,
    SECONDS,
    check_accessible,
    draw,
    opened,
    picture,
    watched,
)
from tests.server.running import Server

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no browser: `make browser` installs chromium")

expect.set_options(timeout=1000 * SECONDS)

FAST = {"metric.random_features": "100", "training.phases": "3", "training.min_steps": "30"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def episodes() -> list[LabelledData]:
    return load("digits").part(Part.TRAIN).episodes(2, 0)


@pytest.fixture(scope="module")
def digits(shared: Server, episodes: list[LabelledData]) -> Server:
    """A server with a learner that knows six digits; stories that change it make one of their own."""
    new_learner(shared, "digits", *episodes[:3])
    return shared


def learn(server: Server, name: str, episode: LabelledData) -> None:
    server.teach(name, (episode.x, list(episode.y)), stream_id=f"digits-{episode.y[0]}")


def home(server: Server, path: str = "") -> str:
    return f"http://127.0.0.1:{server.http_port}/{path}"


def new_learner(server: Server, name: str, *taught: LabelledData, overrides: dict[str, str] | None = None) -> str:
    """A learner for one story; gives the address of its page."""
    content = {"name": name, "overrides": overrides or FAST}
    made = httpx.post(home(server, "api/learners"), json=content, timeout=SECONDS)
    assert made.status_code == 201, made.text
    for episode in taught:
        learn(server, name, episode)
    return home(server, f"#/learners/{name}")


def card(page: Page, name: str) -> Any:
    return page.get_by_role("region", name=name, exact=True).first


# ---- watching -----------------------------------------------------------------------------------------------------


def test_digits_are_learned_while_somebody_watches(
    browser: Browser, digits: Server, episodes: list[LabelledData]
) -> None:
    address = new_learner(digits, "watched")
    with opened(browser, home(digits)) as page:
        expect(page.locator(".tile")).not_to_have_count(0)
        picture(page, "overview")
        page.locator(".tile", has_text="watched").click()
        expect(page.get_by_role("heading", name="watched")).to_be_visible()
        assert page.url == address
        expect(page.locator("#connection")).to_have_text("Live")
        expect(card(page, "Learning now")).to_contain_text("send the first examples")
        picture(page, "new")
        teaching = threading.Thread(target=learn, args=(digits, "watched", episodes[0]))
        teaching.start()
        expect(page.locator(".card.busy")).to_contain_text("Episode 1")
        expect(page.locator(".card.busy .phase").first).to_be_visible()
        picture(page, "learning")
        teaching.join()
        expect(page.locator(".classes tbody tr")).to_have_count(2)
        expect(card(page, "What happened")).to_contain_text("Episode 1 is learned as version 1")
        expect(page.locator(".layer").first).to_be_visible()
        expect(card(page, "Snapshots").locator("tbody tr")).to_have_count(1)
        learn(digits, "watched", episodes[1])
        expect(page.locator(".classes tbody tr")).to_have_count(4)
        expect(page.locator(".heading .figure").nth(2)).to_contain_text("2")
        picture(page, "learned", whole=True)


def test_an_episode_is_seen_being_learned_phase_by_phase(
    browser: Browser, digits: Server, episodes: list[LabelledData]
) -> None:
    settings = {**FAST, "training.min_steps": "400"}
    address = new_learner(digits, "phases", overrides=settings)
    with opened(browser, address) as page:
        teaching = threading.Thread(target=learn, args=(digits, "phases", episodes[0]))
        teaching.start()
        learning = card(page, "Learning now")
        for phase in (1, 2, 3):
            expect(learning).to_contain_text(f"Episode 1, phase {phase} of 3")
            expect(learning.locator(".phase")).to_have_count(3)
            expect(learning.locator(".phase").nth(phase - 1)).to_have_class(re.compile(r"\bnow\b"))
            picture(page, f"phase-{phase}")
        expect(page.locator(".layer").first).to_be_visible()  # units in training, while it learns
        teaching.join()
        expect(learning).to_contain_text("everything that came is known")


def test_the_page_comes_back_by_itself_when_its_server_does(
    browser: Browser, tmp_path: Path, episodes: list[LabelledData]
) -> None:
    server = Server(tmp_path).start()
    server.settings["http.port"] = server.http_port
    try:
        address = new_learner(server, "digits", episodes[0])
        with opened(browser, address, breaks=True) as page:
            expect(page.locator(".classes tbody tr")).to_have_count(2)
            server.kill()
            expect(page.locator("#connection")).to_have_text("Reconnecting …")
            picture(page, "lost")
            server.restart()
            expect(page.locator("#connection")).to_have_text("Live")
            learn(server, "digits", episodes[1])
            expect(page.locator(".classes tbody tr")).to_have_count(4)
    finally:
        server.stop()


def test_two_tabs_see_the_same(browser: Browser, digits: Server, episodes: list[LabelledData]) -> None:
    address = new_learner(digits, "shared", episodes[0])
    with opened(browser, address) as one:
        two = watched(one.context.new_page(), address)
        expect(two.locator(".classes tbody tr")).to_have_count(2)
        forgotten, kept = (str(label) for label in episodes[0].classes)
        one.bring_to_front()
        one.get_by_role("button", name=f"Forget {forgotten} …").click()
        expect(one.get_by_role("dialog")).to_contain_text("This can't be undone")
        picture(one, "question")
        one.get_by_role("button", name=f"Forget {forgotten}", exact=True).click()
        expect(one.locator(".toast")).to_contain_text(f"{forgotten} is forgotten")
        two.bring_to_front()
        for page in (one, two):
            expect(page.locator(".classes tbody tr")).to_have_count(1)
            expect(page.locator(".classes tbody th")).to_have_text([kept])
        assert not two.problems  # type: ignore[attr-defined]


# ---- trying -------------------------------------------------------------------------------------------------------


def test_what_is_drawn_or_pasted_is_named(browser: Browser, digits: Server) -> None:
    test = load("digits").part(Part.TEST)
    asked = test.take([i for i, label in enumerate(test.y) if label == 2])
    index = int(np.argmin(digits.predict("digits", asked.x, novelty=True).novelties))
    with opened(browser, home(digits, "#/learners/digits")) as page:
        draw(page, ONE)
        answer = page.locator(".answer")
        expect(answer).to_be_visible()
        expect(page.locator(".runners li")).not_to_have_count(0)
        expect(page.locator(".chips li")).to_have_count(5)
        picture(page, "drawn")
        page.get_by_role("tab", name="Vector").click()
        page.get_by_label("64 numbers").fill("1, 2, three")
        page.get_by_role("button", name="Ask").click()
        expect(page.get_by_role("alert")).to_contain_text("Not everything there is a number")
        page.get_by_label("64 numbers").fill(", ".join(str(float(value)) for value in asked.x[index]))
        page.get_by_role("button", name="Ask").click()
        expect(answer).to_have_text("2")
        expect(card(page, "Try it")).to_contain_text(re.compile("familiar|unusual"))


def test_a_wrong_answer_is_corrected_and_right_at_once(
    browser: Browser, digits: Server, episodes: list[LabelledData]
) -> None:
    address = new_learner(digits, "corrected", *episodes[:2])
    with opened(browser, address) as page:
        draw(page, CROSS)
        answer = page.locator(".answer")
        expect(answer).to_be_visible()
        wrong = answer.inner_text()
        picture(page, "wrong")
        page.get_by_label("The right label").fill("9")  # a class that it has never met
        page.get_by_role("button", name="Teach it").click()
        expect(answer).to_have_text("9")
        expect(page.locator(".before")).to_have_text(f"was {wrong} – now")
        expect(page.locator(".toast")).to_contain_text("It knows now: this is 9")
        picture(page, "corrected")
        page.get_by_role("button", name="Clear").click()
        draw(page, CROSS)
        expect(answer).to_have_text("9")
        page.locator(".guess").first.click()  # and back, by a single click
        expect(answer).not_to_have_text("9")


def test_an_image_file_is_named_and_corrected(
    browser: Browser, digits: Server, episodes: list[LabelledData], tmp_path: Path
) -> None:
    pixels = (episodes[0].x.reshape(-1, 1, 8, 8) * 255).astype(np.uint8)
    made = {"name": "images", "overrides": FAST, "label_kind": "text"}
    httpx.post(home(digits, "api/learners"), json=made, timeout=SECONDS)
    digits.teach("images", (pixels, [f"digit {label}" for label in episodes[0].y]))
    file = tmp_path / "photo.png"
    Image.fromarray(np.kron(pixels[0, 0], np.ones((20, 20), np.uint8))).save(file)
    with opened(browser, home(digits, "#/learners/images")) as page:
        page.get_by_role("tab", name="Image").click()
        page.locator("#image-file").set_input_files(file)
        expect(page.locator(".answer")).to_have_text(f"digit {episodes[0].y[0]}")
        expect(page.get_by_alt_text("The image that was asked about")).to_be_visible()
        picture(page, "image")
        page.get_by_label("The right label").fill("something new")
        page.keyboard.press("Enter")
        expect(page.locator(".answer")).to_have_text("something new")


# ---- operating ----------------------------------------------------------------------------------------------------


def test_a_snapshot_is_made_downloaded_and_restored(
    browser: Browser, digits: Server, episodes: list[LabelledData]
) -> None:
    address = new_learner(digits, "operated", episodes[0])
    with opened(browser, address) as page:
        snapshots = card(page, "Snapshots")
        snapshots.get_by_role("button", name="Make a snapshot").click()
        page.get_by_label("A note").fill("before the third digit")
        page.get_by_role("button", name="Make it").click()
        expect(snapshots).to_contain_text("before the third digit")
        learn(digits, "operated", episodes[1])
        expect(page.locator(".classes tbody tr")).to_have_count(4)
        row = snapshots.locator("tr", has_text="before the third digit")
        with page.expect_download() as download:
            row.get_by_role("button", name="Download version 1").click()
        assert (
            download.value.suggested_filename.endswith(".safetensors") and download.value.path().stat().st_size > 1000
        )
        row.get_by_role("button", name="Restore version 1 …").click()
        page.get_by_role("dialog").get_by_role("button", name="Restore").click()
        expect(page.locator(".toast", has_text="Restored as version 3, 1 episode undone")).to_be_visible()
        expect(page.locator(".classes tbody tr")).to_have_count(2)


def test_a_file_of_a_snapshot_is_imported(browser: Browser, digits: Server, tmp_path: Path) -> None:
    file = tmp_path / "digits.safetensors"
    file.write_bytes(digits.exported("digits")[1])
    with opened(browser, home(digits)) as page:
        page.get_by_role("button", name="Import a learner …").click()
        page.get_by_label("File", exact=True).set_input_files(file)
        page.get_by_label("Its name").fill("copy")
        picture(page, "import")
        check_accessible(page)
        page.get_by_role("button", name="Import", exact=True).click()
        expect(page.get_by_role("heading", name="copy")).to_be_visible()
        expect(page.locator(".classes tbody tr")).to_have_count(6)
        snapshots = card(page, "Snapshots")
        snapshots.get_by_role("button", name="Import …").click()
        page.get_by_label("File", exact=True).set_input_files(file)
        page.get_by_label("Restore it at once").check()
        page.get_by_role("button", name="Import", exact=True).click()
        expect(page.locator(".toast", has_text="The file is restored as version 2")).to_be_visible()


def test_one_class_is_found_among_many_with_long_names(browser: Browser, digits: Server) -> None:
    names = [f"intent {i}: somethingverylongwithoutanyspaceinit that a customer asked for" for i in range(100)]
    vectors = np.eye(100, 100, dtype=np.float32)
    httpx.post(home(digits, "api/learners"), json={"name": "many", "label_kind": "text"}, timeout=SECONDS)
    taught = {"vectors": vectors.tolist(), "labels": names, "request_id": "all"}
    assert httpx.post(home(digits, "api/learners/many/teach"), json=taught, timeout=SECONDS).status_code == 200
    for width in (390, 1360):
        size = {"width": width, "height": 844}
        with opened(browser, home(digits, "#/learners/many"), viewport=size) as page:
            expect(page.locator(".classes tbody tr")).to_have_count(100)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.locator(".scroll.many").evaluate("element => element.clientHeight") < 700
            picture(page, f"many-{width}", whole=True)
            page.get_by_label("Find a class").fill("INTENT 42")
            expect(page.locator(".classes tbody tr")).to_have_count(1)
            page.get_by_label("Find a class").fill("")
            page.get_by_label("Order of the classes").select_option("By name")
            expect(page.locator(".classes tbody th").nth(2)).to_contain_text("intent 2:")
            check_accessible(page)


def test_everything_can_be_done_with_the_keyboard(browser: Browser, digits: Server) -> None:
    with opened(browser, home(digits, "#/learners/digits")) as page:
        expect(page.locator(".classes tbody tr")).to_have_count(6)
        page.keyboard.press("Tab")
        expect(page.locator(".skip")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_be_focused()
        page.get_by_role("tab", name="Draw").focus()
        page.keyboard.press("ArrowRight")
        expect(page.get_by_role("tab", name="Vector")).to_be_focused()
        expect(page.get_by_label("64 numbers")).to_be_visible()
        forget = page.get_by_role("button", name=re.compile("^Forget .* …$")).first
        forget.focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog").get_by_role("button", name="Cancel")).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        expect(forget).to_be_focused()
        expect(page.locator(".classes tbody tr")).to_have_count(6)


# ---- tokens -------------------------------------------------------------------------------------------------------


def test_a_token_is_asked_for_where_one_is_needed(browser: Browser, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("predict:p-secret\nlearn:l-secret\nadmin:a-secret\n")
    with (
        Server(tmp_path / "server", trust__token_file=tokens).start() as server,
        opened(browser, home(server), breaks=True) as page,
    ):
        field = page.get_by_role("textbox", name="Token")
        expect(page.get_by_role("dialog")).to_contain_text("A token, please")
        picture(page, "token")
        check_accessible(page)
        field.fill("wrong")
        page.get_by_role("button", name="Enter").click()
        expect(page.get_by_role("alert")).to_contain_text("does not know that token")
        field.fill("a-secret")
        page.get_by_role("button", name="Enter").click()
        expect(page.get_by_role("heading", name="Learners")).to_be_visible()
        expect(page.locator("#connection")).to_have_text("Live")
        page.reload()
        expect(page.get_by_role("heading", name="Learners")).to_be_visible()
        page.get_by_role("button", name="Forget token").click()
        field.fill("p-secret")
        page.get_by_role("button", name="Enter").click()
        expect(page.get_by_role("heading", name="Ask a learner")).to_be_visible()
        page.get_by_label("Its name").fill("nobody")
        page.get_by_role("button", name="Open").click()
        expect(page.get_by_role("alert")).to_contain_text("there is no learner")
        assert page.evaluate("Object.keys(localStorage).length") == 0  # a token is gone with its tab


# ---- looks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_and_the_theme_follows(browser: Browser, digits: Server, scheme: str) -> None:
    with opened(browser, home(digits), color_scheme=scheme) as page:
        expect(page.locator(".tile")).not_to_have_count(0)
        check_accessible(page)
        page.goto(home(digits, "#/learners/digits"))
        expect(page.locator(".classes tbody tr")).to_have_count(6)
        draw(page, ONE)
        expect(page.locator(".answer")).to_be_visible()
        check_accessible(page)
        picture(page, scheme, whole=True)
        page.get_by_role("button", name=re.compile("^Forget .* …$")).first.click()
        check_accessible(page)
        page.keyboard.press("Escape")
        brightness = "parseInt(getComputedStyle(document.documentElement).backgroundColor.match(/\\d+/)[0])"
        assert (page.evaluate(brightness) < 60) == (scheme == "dark")
        page.get_by_role("button", name="Switch between light and dark").click()
        assert (page.evaluate(brightness) < 60) == (scheme == "light")
        page.goto(home(digits, "docs"))
        expect(page.locator(".operation")).not_to_have_count(0)
        check_accessible(page)
        picture(page, f"docs-{scheme}")


@pytest.mark.parametrize("width", [320, 390, 768, 1024, 1920])
def test_nothing_sticks_out_however_wide_it_is(browser: Browser, digits: Server, width: int) -> None:
    size = {"width": width, "height": 844}
    with opened(browser, home(digits, "#/learners/digits"), viewport=size, has_touch=width < 500) as page:
        expect(page.locator(".classes tbody tr")).to_have_count(6)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        if width == NARROW["width"]:
            check_accessible(page)
            picture(page, "phone", whole=True)


def test_the_page_is_light_and_comes_from_its_server_alone(browser: Browser, digits: Server) -> None:
    with opened(browser, home(digits, "#/learners/digits")) as page:
        expect(page.locator(".classes tbody tr")).to_have_count(6)
        weights: dict[str, int] = page.evaluate(
            "Object.fromEntries(performance.getEntries().filter((entry) => 'decodedBodySize' in entry"
            " && !entry.name.includes('/api/')).map((entry) => [entry.name, entry.decodedBodySize]))"
        )
        assert page.evaluate("document.fonts.size") == 0
    assert len(weights) >= 10 and all(weights.values()) and sum(weights.values()) < 300_000
