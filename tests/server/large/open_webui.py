"""open_webui.py URL FOLDER: Open WebUI, as installed beside this Python, chats with the server at URL, by its API
and in a browser (playwright from PyPI, and Chromium). Its tools are on, as by default; they take 8,000 tokens."""
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

from playwright.sync_api import sync_playwright

SECONDS_TO_START = 300  # the first start makes its database


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ask(url, body=None, token=None):
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    request = urllib.request.Request(url, json.dumps(body).encode() if body is not None else None, headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read().decode()


def wait_for(url, process):
    deadline = time.monotonic() + SECONDS_TO_START
    while True:
        assert process.poll() is None and time.monotonic() < deadline, "Open WebUI does not start"
        try:
            return ask(url)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.5)


def chat(web, token, **fields):
    return ask(web + "/api/chat/completions", {
        "model": "dms-cr8", "messages": [{"role": "user", "content": "Tell me of the sea."}],
        "max_tokens": 8, "temperature": 0} | fields, token)


def check_api(web, token):
    names = [model["id"] for model in json.loads(ask(web + "/api/models", token=token))["data"]]
    assert "dms-cr8" in names, names
    whole = json.loads(chat(web, token))["choices"][0]["message"]["content"]
    text = ""
    for line in chat(web, token, stream=True).splitlines():
        if line.startswith("data: {"):
            for choice in json.loads(line[6:]).get("choices", []):
                text += choice["delta"].get("content") or ""
    assert whole and text == whole, (whole, text)
    print("Open WebUI lists", names, "and answers", repr(text))


def stored_answer(web, token):
    """The last message of the one chat that there is, as Open WebUI keeps it."""
    (listed,) = json.loads(ask(web + "/api/v1/chats/?page=1", token=token))
    history = json.loads(ask(web + "/api/v1/chats/" + listed["id"], token=token))["chat"]["history"]
    return history["messages"][history["currentId"]]


def check_browser(web, token, picture):
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 860})
        page.goto(web)
        page.get_by_role("dialog").wait_for(timeout=120_000)  # what is new in Open WebUI
        page.keyboard.press("Escape")
        page.locator("#chat-input").click()
        page.keyboard.type("Tell me of the sea.")
        page.keyboard.press("Enter")
        shown = page.locator("#response-content-container")
        page.get_by_role("button", name="Regenerate").last.wait_for(timeout=120_000)
        page.screenshot(path=picture)
        text = shown.last.inner_text().strip()
        stored = stored_answer(web, token)
        browser.close()
    assert "error" not in stored and stored["done"], stored
    assert text and text.split()[0] in stored["content"], (text, stored)
    print("and shows", repr(text))


def main():
    url, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    web = f"http://127.0.0.1:{(port := free_port())}"
    data = folder / "open-webui-data"
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir()
    # Nothing but the server is asked: no hub, no Ollama, no model for embeddings.
    environment = os.environ | {
        "OPENAI_API_BASE_URL": url, "OPENAI_API_KEY": "none", "ENABLE_OLLAMA_API": "False", "WEBUI_AUTH": "False",
        "OFFLINE_MODE": "True", "RAG_EMBEDDING_ENGINE": "openai", "DATA_DIR": str(data),
        "WEBUI_SECRET_KEY": "of this run alone, which is long enough",
        "DEFAULT_MODEL_PARAMS": json.dumps({"temperature": 0, "max_tokens": 40})}
    with open(folder / "open-webui.log", "w") as log:
        process = subprocess.Popen(
            [pathlib.Path(sys.executable).parent / "open-webui", "serve", "--host", "127.0.0.1", "--port", str(port)],
            env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_for(web + "/health", process)
        token = json.loads(ask(web + "/api/v1/auths/signin", {"email": "", "password": ""}))["token"]
        check_api(web, token)
        check_browser(web, token, folder / "open-webui.png")
    finally:
        process.terminate()
        process.wait(30)


if __name__ == "__main__":
    main()
