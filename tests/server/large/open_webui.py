"""open_webui.py URL FOLDER: Open WebUI, as installed beside this Python, chats with the server at URL."""
import json
import os
import pathlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

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


def main():
    url, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    web = f"http://127.0.0.1:{(port := free_port())}"
    # Nothing but the server is asked: no hub, no Ollama, no model for embeddings.
    environment = os.environ | {
        "OPENAI_API_BASE_URL": url, "OPENAI_API_KEY": "none", "ENABLE_OLLAMA_API": "False", "WEBUI_AUTH": "False",
        "OFFLINE_MODE": "True", "RAG_EMBEDDING_ENGINE": "openai", "DATA_DIR": str(folder / "open-webui-data"),
        "WEBUI_SECRET_KEY": "of this run alone"}
    (folder / "open-webui-data").mkdir(exist_ok=True)
    program = pathlib.Path(sys.executable).parent / "open-webui"
    with open(folder / "open-webui.log", "w") as log:
        process = subprocess.Popen([program, "serve", "--host", "127.0.0.1", "--port", str(port)], env=environment,
                                   stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_for(web + "/health", process)
        token = json.loads(ask(web + "/api/v1/auths/signin", {"email": "", "password": ""}))["token"]
        names = [model["id"] for model in json.loads(ask(web + "/api/models", token=token))["data"]]
        assert "dms-cr8" in names, names
        whole = json.loads(chat(web, token))["choices"][0]["message"]["content"]
        text = ""
        for line in chat(web, token, stream=True).splitlines():
            if line.startswith("data: {"):
                for choice in json.loads(line[6:]).get("choices", []):
                    text += choice["delta"].get("content") or ""
        assert whole and text == whole, (whole, text)
        print("Open WebUI lists", names, "and shows", repr(text))
    finally:
        process.terminate()
        process.wait(30)


if __name__ == "__main__":
    main()
