"""The page at "/" in a real browser: a chat whose cache is watched. With WINNOW_SCREENSHOTS=DIR it
leaves pictures there, which whoever changes the page looks at."""
import json
import os
import pathlib
import re
import shutil

import httpx
import pytest

from conftest import ROOT, serving

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
                None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
SHOTS = os.environ.get("WINNOW_SCREENSHOTS")


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser, server):
    # The page forbids eval(), which wait_for_function() needs.
    page = browser.new_page(viewport={"width": 1280, "height": 860}, bypass_csp=True)
    problems = []
    page.on("console", lambda m: problems.append(m.text)
            if m.type == "error" and "Failed to load resource" not in m.text else None)
    page.on("pageerror", lambda e: problems.append(str(e)))
    page.on("request", lambda r: r.url.startswith((server.url, "blob:", "data:"))
            or problems.append(f"asks elsewhere: {r.url}"))
    page.goto(server.url)
    page.wait_for_function("document.getElementById('model').textContent.includes('dms-cr8')")
    yield page
    page.close()
    assert problems == []


def shoot(page, name):
    if SHOTS:
        page.screenshot(path=pathlib.Path(SHOTS) / f"{name}.png")


def say(page, text, tokens=40):
    page.locator("summary", has_text="Settings").click()
    page.fill("#max-tokens", str(tokens))
    page.fill("#temperature", "0")
    page.locator("summary", has_text="Settings").click()
    page.fill("#input", text)
    page.press("#input", "Enter")
    page.wait_for_function("document.querySelectorAll('li.assistant .t').length > 0")
    page.wait_for_function("!document.getElementById('send').disabled")


def pixels(page, canvas):
    return page.evaluate("id => document.getElementById(id).toDataURL()", canvas)


def test_chat_and_live_cache(page):
    assert "window 64" in page.inner_text("#model")
    empty = pixels(page, "map")
    say(page, (ROOT / "assets/demo_prompt.txt").read_text())
    assert "48213" in page.inner_text("li.assistant")
    assert pixels(page, "map") != empty
    ratio = float(page.inner_text("#ratio").rstrip("×"))
    assert 5 < ratio < 20
    assert page.inner_text("#held") != page.inner_text("#dense")
    # Every token of the conversation can be pointed at; few heads hold an old one.
    tokens = page.locator("li.user .t")
    assert tokens.count() > 3000
    tokens.nth(700).scroll_into_view_if_needed()
    tokens.nth(700).hover()
    told = page.inner_text("#token")
    held, heads = map(int, re.search(r"held by (\d+) of (\d+)", told).groups())
    assert heads == 16 and held < 16
    shares = page.eval_on_selector_all(
        ".t", "spans => spans.map(s => Number(s.style.getPropertyValue('--held')))")
    assert min(shares) < 0.2 and max(shares) == 1.0
    page.locator("li.assistant .t").last.scroll_into_view_if_needed()
    shoot(page, "page-light")
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    shoot(page, "page-dark")


def test_keys_walk_through_tokens(page):
    say(page, "Tell me of the sea and of the ship.", tokens=8)
    page.focus("#messages")
    seen = set()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
        seen.add(page.inner_text("#token"))
    assert len(seen) == 5
    page.locator("summary", has_text="Entries of each head").click()
    page.wait_for_function("document.querySelectorAll('#table tr').length === 9")


def test_several_turns_and_markup_is_text(page):
    say(page, "<img src=x onerror=alert(1)> <b>bold</b>", tokens=4)
    assert page.locator("li.user img, li.user b b").count() == 0
    assert "<b>bold</b>" in page.inner_text("li.user")
    say(page, "And then?", tokens=4)
    assert page.locator("#messages li").count() == 4
    page.click("#clear")
    assert page.locator("#messages li").count() == 0


def test_stop_ends_the_request(page, server):
    # An answer that does not end by itself, which random ones may do after a few tokens.
    page.route("**/v1/chat/completions", lambda route: route.continue_(
        post_data={**route.request.post_data_json, "ignore_eos": True}))
    page.locator("summary", has_text="Settings").click()
    page.fill("#max-tokens", "3000")
    page.fill("#temperature", "5")
    page.fill("#input", "Tell me a long story.")
    page.click("#send")
    page.wait_for_function("document.querySelectorAll('li.assistant .t').length > 5")
    page.evaluate("document.getElementById('stop').click()")
    page.wait_for_function("!document.getElementById('send').disabled")
    assert page.is_hidden("#error")
    assert 'winnow_requests_total{outcome="cancelled"}' in httpx.get(server.url + "/metrics").text


def test_a_temperature_that_was_typed_stays(browser, server):
    page = browser.new_page(bypass_csp=True)
    held = []
    page.route("**/v1/models", lambda route: held.append(route))
    page.goto(server.url)
    page.locator("summary", has_text="Settings").click()
    page.fill("#temperature", "1.5")
    held[0].continue_()
    page.wait_for_function("document.getElementById('model').textContent.includes('dms-cr8')")
    assert page.input_value("#temperature") == "1.5"
    page.close()


def test_a_refused_message_goes_back_to_its_box(page):
    page.locator("summary", has_text="Settings").click()
    page.fill("#system", "You are a lighthouse.")
    page.locator("summary", has_text="Settings").click()
    page.fill("#input", "word " * 6000)
    page.click("#send")
    page.wait_for_selector("#error:not([hidden])")
    assert "context" in page.inner_text("#error")
    page.wait_for_function("!document.getElementById('send').disabled")
    assert page.input_value("#input").startswith("word word")
    assert page.locator("#messages li").count() == 0
    say(page, "Hello", tokens=4)
    assert page.is_hidden("#error")
    assert page.evaluate("messages.map((message) => message.role)") == ["system", "user", "assistant"]


def test_a_refused_message_leaves_the_last_cache_shown(page):
    say(page, "Hello", tokens=4)
    shown = pixels(page, "map"), page.inner_text("#held")
    page.fill("#input", "word " * 6000)
    page.click("#send")
    page.wait_for_selector("#error:not([hidden])")
    told = page.inner_text("#error")
    assert "begin a new chat" in told and "lower max tokens in Settings" in told
    assert (pixels(page, "map"), page.inner_text("#held")) == shown


def test_tools_that_are_not_json_are_named(page):
    page.locator("summary", has_text="Settings").click()
    page.fill("#tools", "not json")
    page.locator("summary", has_text="Settings").click()
    page.fill("#input", "Hello")
    page.click("#send")
    page.wait_for_selector("#error:not([hidden])")
    assert page.inner_text("#error").startswith("Tools in Settings is not JSON")
    assert page.input_value("#input") == "Hello"


def test_a_server_that_is_gone_is_named(browser):
    with serving() as s:
        page = browser.new_page(bypass_csp=True)
        page.goto(s.url)
        page.wait_for_function("document.getElementById('model').textContent.includes('dms-cr8')")
    page.fill("#input", "Hello")
    page.click("#send")
    page.wait_for_selector("#error:not([hidden])")
    assert s.url in page.inner_text("#error") and "is it running" in page.inner_text("#error")
    page.close()


def test_a_rule_that_does_not_tell_says_so_in_the_map(browser):
    with serving("--cache", "h2o", "--cr", "4", model=ROOT / "assets/base") as s:
        page = browser.new_page(viewport={"width": 1280, "height": 860}, bypass_csp=True)
        page.goto(s.url)
        page.wait_for_function("document.getElementById('model').textContent.includes('h2o')")
        assert "--cache h2o: the budget is a part of prompt and max_tokens" in s.read_log()
        empty = pixels(page, "map")
        say(page, "Tell me of the sea.", tokens=20)
        page.wait_for_function("document.getElementById('ratio').textContent !== '–'")
        assert pixels(page, "map") != empty
        shoot(page, "page-h2o-light")
        page.close()


def test_an_answer_says_that_it_was_cut(page):
    assert page.input_value("#max-tokens") == ""
    say(page, "Tell me of the sea.", tokens=4)
    assert page.locator("li.assistant .t").count() <= 4
    assert "max tokens allows" in page.inner_text("li.assistant .note")


def test_a_key_is_asked_for(browser):
    with serving("--api-key", "secret") as s:
        page = browser.new_page(bypass_csp=True)
        page.goto(s.url)
        page.wait_for_selector("#error:not([hidden])")
        assert "key" in page.inner_text("#error")
        page.locator("summary", has_text="Settings").click()
        page.fill("#key", "secret")
        page.press("#key", "Tab")
        page.wait_for_function("document.getElementById('model').textContent.includes('dms-cr8')")
        page.locator("summary", has_text="Settings").click()
        say(page, "Hello", tokens=4)
        page.close()


def test_chains_vote_with_a_switch(page):
    page.locator("summary", has_text="Settings").click()
    assert page.is_disabled("#chains")
    page.check("#votes")
    page.fill("#chains", "5")
    page.fill("#max-tokens", "60")
    shoot(page, "page-settings-light")
    page.locator("summary", has_text="Settings").click()
    page.fill("#input", "How many ships are there? Say a number.")
    page.press("#input", "Enter")
    page.wait_for_selector("details.votes")
    page.wait_for_function("!document.getElementById('send').disabled")
    page.locator("details.votes summary").click()
    assert page.locator("details.votes li").count() == 5
    assert "KV reads" in page.inner_text("details.votes")
    assert "5 chains had a cache of its own" in page.inner_text("#token")
    shoot(page, "page-votes-light")
    page.click("#theme")
    shoot(page, "page-votes-dark")
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    shoot(page, "page-votes-phone")


def events(*deltas):
    return "".join("data: " + json.dumps({"choices": [{"index": 0, "delta": d}]}) + "\n\n"
                   for d in deltas) + "data: [DONE]\n\n"


def test_thoughts_are_folded_and_tools_answered(page):
    """The demo model calls no tool by itself, so what is streamed is written here."""
    asked = []

    def answer(route):
        asked.append(route.request.post_data_json)
        if len(asked) == 1:
            body = events({"reasoning_content": "I had better "}, {"reasoning_content": "ask."},
                          {"tool_calls": [{"index": 0, "id": "call_1", "type": "function",
                                           "function": {"name": "weather", "arguments": ""}}]},
                          {"tool_calls": [{"index": 0, "function": {"arguments": '{"city": '}}]},
                          {"tool_calls": [{"index": 0, "function": {"arguments": '"Rome"}'}}]})
        else:
            body = events({"content": "It is "}, {"content": "sunny in Rome."})
        route.fulfill(status=200, content_type="text/event-stream", body=body)

    page.route("**/v1/chat/completions", answer)
    page.locator("summary", has_text="Settings").click()
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {}}}]
    page.fill("#tools", json.dumps(tools))
    page.locator("summary", has_text="Settings").click()
    page.fill("#input", "How is the weather in Rome?")
    page.press("#input", "Enter")
    page.wait_for_selector(".call input")
    page.wait_for_function("!document.getElementById('send').disabled")
    assert page.inner_text(".call code") == 'weather({"city": "Rome"})'
    assert not page.locator("details.thought > span").is_visible()
    page.locator("details.thought summary").click()
    assert page.inner_text("details.thought > span") == "I had better ask."
    shoot(page, "page-tools-light")
    page.click("#theme")
    page.fill(".call input", "sunny, 25 degrees")
    page.press(".call input", "Enter")
    page.wait_for_function("document.querySelectorAll('li.assistant').length === 2")
    page.wait_for_function("!document.getElementById('send').disabled")
    assert page.locator("li.assistant").last.inner_text().endswith("It is sunny in Rome.")
    shoot(page, "page-tools-dark")
    assert asked[0]["tools"] == tools
    called, result = asked[1]["messages"][-2:]
    assert called["tool_calls"][0]["function"]["arguments"] == '{"city": "Rome"}'
    assert result == {"role": "tool", "tool_call_id": "call_1", "content": "sunny, 25 degrees"}


def test_its_own_policy_lets_it_work(browser, server):
    page = browser.new_page()
    problems = []
    page.on("console", lambda m: problems.append(m.text) if m.type == "error"
            and "Failed to load resource" not in m.text else None)
    page.goto(server.url)
    page.fill("#input", "Hello")
    page.press("#input", "Enter")
    page.wait_for_selector("li.assistant .t")
    assert problems == []
    page.close()


def test_on_a_phone(browser, server):
    page = browser.new_page(viewport={"width": 390, "height": 844}, device_scale_factor=2,
                            bypass_csp=True)
    page.goto(server.url)
    say(page, "Tell me of the sea.", tokens=20)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    shoot(page, "page-phone")
    page.close()
