"""What other servers' clients ask before and beside completions."""
import httpx
from conftest import MODEL, ROOT, serving


def test_small_doors(server):
    def get(path):
        answer = httpx.get(server.url + path)
        assert answer.status_code == 200, answer.text
        return answer.json()
    assert get("/version")["version"].count(".") >= 1
    assert get("/ping") == {"status": "ok"}
    assert get("/load") == {"server_load": 0}
    properties = get("/props")
    assert properties["model_alias"] == MODEL and properties["total_slots"] > 0
    assert properties["default_generation_settings"]["n_ctx"] == get("/v1/models")["data"][0][
        "max_model_len"]
    info = get("/tokenizer_info")
    assert info["vocab_size"] > 0 and "{%" in info["chat_template"]
    assert get("/models")["data"][0]["id"] == MODEL
    answer = httpx.post(server.url + "/chat/completions", json={
        "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1})
    assert answer.status_code == 200


def test_aliases():
    with serving("--model-alias", "gpt-4o", "--model-alias", "claude") as s:
        models = httpx.get(s.url + "/v1/models").json()
        assert [m["id"] for m in models["data"]] == [MODEL, "gpt-4o", "claude"]
        assert httpx.get(s.url + "/v1/models/claude").json()["id"] == "claude"
        for name, status in ((MODEL, 200), ("gpt-4o", 200), ("gpt-4", 404)):
            answer = httpx.post(s.url + "/v1/completions",
                                json={"model": name, "prompt": "a", "max_tokens": 1})
            assert answer.status_code == status, answer.text
            assert status != 200 or answer.json()["model"] == name


def test_templates_are_applied(server):
    messages = [{"role": "user", "content": "Tell me of the sea."}]

    def ask(path, **fields):
        return httpx.post(server.url + path, json={"messages": messages} | fields)
    for fields in ({}, {"add_generation_prompt": False}):
        text = ask("/apply-template", **fields).json()["prompt"]
        tokens = httpx.post(server.url + "/tokenize",
                            json={"prompt": text, "add_special_tokens": False}).json()["tokens"]
        assert tokens == ask("/tokenize", **fields).json()["tokens"]
    answer = ask("/apply-template", return_token_strs=True)
    assert answer.headers["x-winnow-ignored"] == "return_token_strs"
    messages = [{"role": "user", "token_ids": [5]}]
    refused = ask("/apply-template")
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "messages[0].token_ids"
    assert httpx.post(server.url + "/apply-template", json={"prompt": "a"}).status_code == 400


def test_doors_of_other_servers_say_where_to_ask(server):
    for method, path, instead in (("POST", "/completion", "/v1/completions"), ("GET", "/slots", "/metrics"),
                                  ("POST", "/generate", "/v1/completions"),
                                  ("POST", "/api/chat", "/v1/chat/completions")):
        answer = httpx.request(method, server.url + path, json={"prompt": "a"})
        error = answer.json()["error"]
        assert answer.status_code == 404 and error["code"] == "unknown_url" and instead in error["message"]
    assert "use" not in httpx.get(server.url + "/nowhere").json()["error"]["message"]


def test_tokenizer_info_takes_what_python_writes(tmp_path):
    for file in (ROOT / "assets/dms-cr8").iterdir():
        if file.name != "tokenizer_config.json":
            (tmp_path / file.name).symlink_to(file)
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": Infinity}')
    with serving(model=str(tmp_path)) as s:
        answer = httpx.get(s.url + "/tokenizer_info")
        assert answer.status_code == 200 and answer.json()["model_max_length"] == "Infinity"
