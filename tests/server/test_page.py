"""The web page in Chromium against a real server: what a linguist does with it, by mouse and by keyboard."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from test_server_lifecycle import process

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.part("browser"),
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed; CHROMIUM may name its path"),
]
expect = playwright.expect

TABLE = "heute öffnet die tabelle die große zelle ."
MEMORY_SIDE = ".side-memory .prose"
WAIT = 20_000  # milliseconds


@pytest.fixture(scope="module")
def server(client, tmp_path_factory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("page")
    for name in ("client", "house"):
        shutil.copytree(client.store, folder / name)
    with process(folder / "client", folder / "house", "--allow-edits-without-key") as (_, http):
        yield http


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as runner:
        found = runner.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        yield found
        found.close()


@pytest.fixture
def page(browser, server, request):
    """A page in a fresh browser context. Errors in its console fail the test."""
    options = getattr(request, "param", {})
    context = browser.new_context(viewport={"width": 1200, "height": 900}, **options)
    found = context.new_page()
    found.set_default_timeout(WAIT)
    expect.set_options(timeout=WAIT)
    console_errors: list[str] = []
    found.on("pageerror", lambda error: console_errors.append(str(error)))
    found.on("console", lambda message: console_errors.append(message.text) if message.type == "error" else None)
    found.goto(str(server.base_url))
    expect(found.locator("#store")).to_be_enabled()
    yield found
    context.close()
    assert not [text for text in console_errors if "Failed to load resource" not in text]


def translate(page, text: str) -> None:
    page.fill("#source", text)
    page.click("#translate")
    expect(page.locator(".pair")).to_have_count(len(text.splitlines()))
    expect(page.locator("#result")).to_have_attribute("aria-busy", "false")


def word(page, text: str):
    return page.locator(f"{MEMORY_SIDE} .word", has_text=re.compile(f"^{text}$")).first


def add(server: httpx.Client, **unit: str) -> None:
    assert server.post("/v1/stores/client/units", json={"units": [unit]}).json()["added"] == 1


def test_base_and_adaptive_translations_are_side_by_side_with_changes_marked(page):
    translate(page, f"{TABLE}\n{TABLE}")
    left, right = page.locator(".side").first.bounding_box(), page.locator(".side-memory").first.bounding_box()
    assert left["y"] == right["y"]
    assert left["x"] < right["x"]
    expect(page.locator(".plain").first).to_contain_text("table")
    expect(page.locator(MEMORY_SIDE).first).to_contain_text("spreadsheet")
    assert page.locator(".plain .gone").all_text_contents() == ["table", "table"]
    assert page.locator(f"{MEMORY_SIDE} .is-changed").all_text_contents() == ["spreadsheet", "spreadsheet"]
    expect(word(page, "spreadsheet")).to_have_class(re.compile("is-overruled"))
    expect(word(page, "today")).not_to_have_class(re.compile("is-"))
    expect(page.locator("#source-label")).to_have_text("German → English")


def test_evidence_of_a_word_shows_neighbours_weights_of_k_and_the_models_candidates(page):
    translate(page, TABLE)
    word(page, "spreadsheet").click()
    evidence = page.locator(".evidence")
    expect(evidence.locator(".verdict")).to_contain_text("The model alone would have chosen")
    first = evidence.locator("tbody tr").first
    expect(first.locator("td").nth(0)).to_contain_text("tabelle")
    assert first.locator("mark").text_content() in "spreadsheet"
    expect(first.locator("td").nth(2)).to_contain_text("memory.tsv")
    assert re.fullmatch(r"[\d.e+-]+", first.locator("td").nth(3).text_content())
    assert first.locator("td").nth(4).text_content().endswith("%")
    assert evidence.locator(".chart .bar-k").all_text_contents() == ["0", "1", "2", "4", "8"]
    assert "k 0:" in evidence.locator(".chart").get_attribute("aria-label")
    assert evidence.locator(".bar-list li").count() == 5
    word(page, "today").click()
    expect(page.locator(".evidence")).to_have_count(1)
    expect(page.locator(".evidence h3")).to_have_text("Why “today”")


def test_a_correction_is_used_and_a_second_one_replaces_it(page, server):
    def correct(target: str) -> None:
        page.click("[data-action=correct]")
        page.fill("#correction", target)
        page.click(".correction .primary")
        expect(page.locator(MEMORY_SIDE)).to_have_text(target)
        expect(page.locator(".pair .tag")).to_have_text("✓ your correction")

    source = "die rote datei findet das fenster ."
    translate(page, source)
    correct("the red file opens the window .")
    expect(page.locator(".notice").last).to_contain_text("Saved to the memory")
    correct("the red file closes the folder .")
    expect(page.locator(".notice").last).to_contain_text("earlier correction was replaced")
    origins = {found["name"]: found["units"] for found in server.get("/v1/stores/client").json()["origins"]}
    assert origins["corrections"] == 1
    page.reload()
    translate(page, source)
    expect(page.locator(MEMORY_SIDE)).to_have_text("the red file closes the folder .")


def test_removing_a_segment_can_be_undone_without_loss(page, server):
    source = "heute druckt die alte seite das wort ."
    bad = {
        "source": source,
        "target": "the empty button deletes the picture .",
        "unit_id": "u 7",
        "origin": "old & bad",
    }
    good = {**bad, "target": "today the old page prints the word .", "unit_id": "u 8"}
    dates = ("2020-02-03T04:05:06Z", "2021-02-03T04:05:06Z")
    add(server, **bad, changed_at=dates[0])
    translate(page, source)
    expect(page.locator(MEMORY_SIDE)).to_have_text(bad["target"])
    add(server, **good)
    word(page, "button").click()
    row = page.locator(".evidence tbody tr", has_text=bad["target"]).first
    row.get_by_role("button", name="Remove").click()
    expect(row).to_have_class("is-removed")
    expect(page.locator("#stale")).to_be_visible()
    left = server.delete("/v1/stores/client/units", params={"target": bad["target"]}).json()
    assert left["units"] == 0
    row.get_by_role("button", name="Undo").click()
    expect(row).not_to_have_class("is-removed")
    back = server.delete("/v1/stores/client/units", params={"origin": bad["origin"], "target": bad["target"]}).json()
    assert back["removed"] == [{**bad, "changed_at": dates[0]}]
    page.click("#again")
    expect(page.locator(MEMORY_SIDE)).not_to_have_text(bad["target"])
    expect(page.locator("#stale")).to_be_hidden()
    assert server.delete("/v1/stores/client/units", params={"origin": bad["origin"]}).json()["units"] == 1


def test_the_undo_button_of_a_message_restores_a_segment(page, server):
    source = "heute sucht die leere form den punkt ."
    target = "the small printer finds the color ."
    add(server, source=source, target=target, origin="wrong")
    translate(page, source)
    word(page, "printer").click()
    page.locator(".evidence tbody tr", has_text=target).first.get_by_role("button", name="Remove").click()
    page.locator(".notice").get_by_role("button", name="Undo").click()
    expect(page.locator(".notice").last).to_contain_text("Restored to the memory")
    assert server.delete("/v1/stores/client/units", params={"origin": "wrong"}).json()["units"] == 1


def test_an_uploaded_file_is_imported_with_progress(page, tmp_path: Path):
    file = tmp_path / "extra.tsv"
    file.write_text("".join(f"die rote datei {n} .\tthe scarlet file {n} .\n" for n in range(250)), encoding="utf-8")
    page.click("#tab-memory")
    expect(page.locator("#upload-start")).to_be_disabled()
    page.set_input_files("#upload-file", file)
    page.click("#upload-start")
    expect(page.locator("#upload-state")).to_have_text("Done: 250 new sentences.")
    assert page.locator("#upload-bar").get_attribute("value") == "1"
    expect(page.locator("#memory")).to_contain_text("extra.tsv")
    broken = tmp_path / "broken.tmx"
    broken.write_text("<tmx><body><tu>", encoding="utf-8")
    page.set_input_files("#upload-file", broken)
    page.click("#upload-start")
    expect(page.locator("#upload-state")).to_contain_text("The file was not added: broken.tmx")


def test_another_store_can_be_selected_and_is_described(page):
    page.select_option("#store", "house")
    page.click("#tab-memory")
    memory = page.locator("#memory")
    expect(memory.locator("h2").first).to_have_text("house")
    for text in ("500", "German → English", "memory.tsv", "K ≤ 8", "T = 0.1", "Loss on held-out text", "Health ✓ good"):
        expect(memory).to_contain_text(text)
    assert memory.locator(".bar-list .bar-name").all_text_contents()[-1] == "Adaptive"
    expect(memory).to_contain_text("Exact search")


def test_the_slider_sets_k_for_vanilla_and_uniform(page):
    page.select_option("#store", "house")
    page.fill("#source", TABLE)
    page.click("#tab-methods")
    rows = page.locator(".method .prose")
    expect(rows).to_have_count(4)
    page.focus("#k")
    page.keyboard.press("Home")
    expect(page.locator("#k-value")).to_have_text("k = 0")
    expect(page.locator("[data-method=uniform] .tag")).to_have_text("k = 0")
    base = page.locator("[data-method=base] .prose").text_content()
    assert page.locator("[data-method=vanilla] .prose").text_content() == base
    page.keyboard.press("End")
    expect(page.locator("#k-value")).to_have_text("k = 8")
    expect(page.locator("[data-method=uniform] .tag")).to_have_text("k = 8")
    expect(page.locator("[data-method=uniform] .is-changed")).to_have_text("spreadsheet")
    expect(page.locator("[data-method=adaptive] .is-changed")).to_have_text("spreadsheet")
    expect(page.locator("#methods-chart .chart")).to_be_visible()


def focused(page) -> str:
    return page.evaluate("document.activeElement.id || document.activeElement.textContent")


def test_everything_works_by_keyboard(page, server):
    source = "heute kopiert die ordner die kleine linie ."
    page.focus("#source")
    page.keyboard.type(source)
    page.keyboard.press("Control+Enter")
    expect(page.locator(".pair")).to_have_count(1)
    page.keyboard.press("Tab")
    assert focused(page) == "translate"
    page.keyboard.press("Tab")
    assert focused(page) == "today"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert focused(page) == "directory"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("Enter")
    assert focused(page) == "Why “directory”"
    page.keyboard.press("Escape")
    assert focused(page) == "directory"
    expect(page.locator(".evidence")).to_have_count(0)
    page.keyboard.press("Tab")
    assert focused(page) == "Correct"
    page.keyboard.press("Enter")
    assert focused(page) == "correction"
    page.keyboard.press("Control+a")
    page.keyboard.type("today the folder copies the point .")
    page.keyboard.press("Control+Enter")
    expect(page.locator(MEMORY_SIDE)).to_have_text("today the folder copies the point .")
    expect(page.locator(f"{MEMORY_SIDE} .word").first).to_be_focused()
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    assert focused(page) == "point"
    page.keyboard.press("Enter")
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") == "TR":
            break
    expect(page.locator(".evidence tbody tr").first).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".evidence tbody tr").nth(1)).to_be_focused()
    page.keyboard.press("Home")
    page.keyboard.press("Delete")
    expect(page.locator(".evidence tbody tr").first).to_have_class("is-removed")
    page.keyboard.press("Tab")
    assert focused(page) == "Undo"
    page.keyboard.press("Enter")
    expect(page.locator(".evidence tbody tr").first).not_to_have_class("is-removed")
    page.focus("#tab-translate")
    page.keyboard.press("ArrowRight")
    assert focused(page) == "tab-methods"
    expect(page.locator("#view-methods")).to_be_visible()


@pytest.mark.parametrize("page", [{"color_scheme": "dark"}, {"color_scheme": "light"}], indirect=True)
def test_colours_follow_the_system_and_have_enough_contrast(page, request):
    translate(page, TABLE)
    word(page, "spreadsheet").click()
    expect(page.locator(".evidence mark").first).to_be_visible()
    body = page.evaluate("getComputedStyle(document.body).backgroundColor")
    is_dark = sum(int(value) for value in re.findall(r"\d+", body)[:3]) < 384
    assert is_dark == (request.node.callspec.params["page"]["color_scheme"] == "dark")
    for place in (".hint", ".plain .gone", ".word.is-changed", ".primary", ".verdict", "td.origin", "mark"):
        assert contrast(page, place) >= 4.5, place


def contrast(page, place: str) -> float:
    """The WCAG contrast ratio between a text and its background."""
    return page.evaluate(
        """(place) => {
        const element = document.querySelector("main " + place);
        const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
        const over = (colors) => {
            canvas.clearRect(0, 0, 1, 1);
            for (const color of colors) { canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); }
            return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
        };
        const backgrounds = [];
        for (let each = element; each; each = each.parentElement) {
            backgrounds.unshift(getComputedStyle(each).backgroundColor);
        }
        const light = (rgb) => {
            const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
            const [r, g, b] = rgb.map((v) => linear(v / 255));
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const [a, b] = [light(over(backgrounds)), light(over([...backgrounds, getComputedStyle(element).color]))];
        return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    }""",
        place,
    )


def test_a_narrow_window_needs_no_horizontal_scrolling(page):
    page.set_viewport_size({"width": 360, "height": 740})
    translate(page, TABLE)
    word(page, "spreadsheet").click()
    expect(page.locator(".evidence tbody tr").first).to_be_visible()
    for view in ("translate", "methods", "memory"):
        page.click(f"#tab-{view}")
        expect(page.locator(f"#view-{view}")).to_be_visible()
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, view
    page.click("#tab-translate")
    plain, adapted = page.locator(".side").first.bounding_box(), page.locator(".side-memory").first.bounding_box()
    assert plain["y"] < adapted["y"]


def test_markup_in_texts_and_segments_is_shown_as_text(page, server):
    harms = ("<script>h=1</script>", "<img src=x onerror=h=1>")
    source = "heute löscht die farbe die neue drucker ."
    for harm in harms:
        add(server, source=source, target=f"today the color {harm}", origin=f"<b>{harm}</b>")
    translate(page, f"{source} {''.join(harms)}")
    translate(page, source)
    word(page, "color").click()
    for harm in harms:
        row = page.locator(".evidence tbody tr", has_text=harm).first
        expect(row.locator("td").nth(1)).to_have_text(f"today the color {harm}")
        expect(row.locator(".origin")).to_have_text(f"<b>{harm}</b>")
    page.click("#tab-memory")
    for harm in harms:
        expect(page.locator("#memory")).to_contain_text(f"<b>{harm}</b>")
    assert page.locator("main script, main img, main b").count() == 0
    assert page.evaluate("window.h") is None
    assert server.delete("/v1/stores/client/units", params={"source": source}).json()["units"] == 2


def test_the_browser_refuses_to_parse_strings_as_html(browser, server):
    context = browser.new_context()
    page = context.new_page()
    page.goto(str(server.base_url))
    with pytest.raises(playwright.Error, match="TrustedHTML"):
        page.evaluate("document.body.innerHTML = '<p>x'")
    context.close()


def test_characters_outside_the_basic_plane_do_not_shift_words(page, server):
    source = "😀 der text zeigt die form ."
    add(server, source=source, target="the text shows the shape .", origin="plain")
    translate(page, source)
    assert "".join(page.locator(MEMORY_SIDE).all_text_contents()).strip()
    word(page, "shape").click()
    assert page.locator(".evidence mark").first.text_content() in "shape"


def test_a_server_with_keys_asks_for_one(browser, client, tmp_path):
    config = tmp_path / "serve.toml"
    config.write_text(
        f'[stores]\nclient = "{client.store}"\n'
        '[[keys]]\nname = "reader"\nkey = "key-to-translate"\nrole = "translate"\n'
        '[[keys]]\nname = "editor"\nkey = "key-to-edit-with"\nrole = "edit"\n',
        encoding="utf-8",
    )
    with process("--config", config) as (_, http):
        context = browser.new_context()
        page = context.new_page()
        page.goto(str(http.base_url))
        expect(page.locator("#key")).to_be_focused()
        expect(page.locator("#key-hint")).to_contain_text("This server needs a key")
        page.fill("#key", "no such key")
        page.keyboard.press("Enter")
        expect(page.locator(".notice-bad")).to_contain_text("Unknown key")
        page.fill("#key", "key-to-translate")
        page.keyboard.press("Enter")
        expect(page.locator("#key-toggle")).to_have_text("Key ✓")
        translate(page, TABLE)
        expect(page.locator("[data-action=correct]")).to_have_count(0)
        assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
        page.reload()
        expect(page.locator("#store")).to_be_enabled()
        page.click("#key-toggle")
        page.fill("#key", "key-to-edit-with")
        page.keyboard.press("Enter")
        translate(page, TABLE)
        expect(page.locator("[data-action=correct]")).to_have_count(1)
        page.click("#key-toggle")
        page.click("#key-forget")
        expect(page.locator("#translate")).to_be_disabled()
        context.close()


def answering(status: int, body: dict[str, Any]):
    return lambda route: route.fulfill(status=status, json=body, headers={"Retry-After": "7"})


def test_errors_are_shown_with_advice(page, server):
    page.fill("#source", "zelle " * 10_000)
    page.click("#translate")
    expect(page.locator(".notice-bad").last).to_contain_text("the limit is 50000. Make it shorter")
    answers = {
        "queue_full": (503, "the queue is full", "Try again in 7 s."),
        "time_limit": (504, "it took longer than 60 seconds", "Try a shorter text."),
    }
    page.fill("#source", TABLE)
    for code, (status, message, advice) in answers.items():
        body = {"error": {"code": code, "message": message}}
        page.route("**/v1/translate", answering(status, body))
        page.click("#translate")
        expect(page.locator(".notice-bad").last).to_contain_text(advice)
        page.unroute("**/v1/translate")
    page.route("**/v1/translate", lambda route: route.abort())
    page.click("#translate")
    expect(page.locator(".notice-bad").last).to_contain_text("Cannot reach the server")
    page.unroute("**/v1/translate")
    translate(page, TABLE)
