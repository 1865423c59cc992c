"""Embeddings and rankings, of models that say they are made for them."""
import base64
import json
import math
import shutil
import struct

import httpx
import pytest
from conftest import ROOT, serving
from test_http import post

TEXTS = ["The sea was calm.", "A calm sea.", "Tax law of 1987"]


def copy_of_the_demo(folder, files=(), **config):
    model = folder / "model"
    shutil.copytree(ROOT / "assets/dms-cr8", model)
    known = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(known | config))
    for name, content in files:
        (model / name).parent.mkdir(exist_ok=True)
        (model / name).write_text(json.dumps(content))
    return str(model)


def made_for_vectors(folder):
    return copy_of_the_demo(folder, pooling(pooling_mode_lasttoken=True),
                            classifier_from_token=["No", "Yes"])


def pooling(**modes):
    return [("modules.json", [{"type": "sentence_transformers.models.Transformer", "path": ""},
                              {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
                              {"type": "sentence_transformers.models.Normalize"}]),
            ("1_Pooling/config.json", modes)]


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    with serving("--deterministic",
                 model=made_for_vectors(tmp_path_factory.mktemp("vectors"))) as s:
        yield s


def embed(server, given, **fields):
    answer = post(server, {"input": given} | fields, "/v1/embeddings")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_embeddings(vectors):
    whole = embed(vectors, TEXTS)
    assert [d["index"] for d in whole["data"]] == [0, 1, 2]
    first = whole["data"][0]["embedding"]
    assert len(first) == 384 and math.isclose(math.hypot(*first), 1.0, rel_tol=1e-5)
    assert embed(vectors, TEXTS[0])["data"][0]["embedding"] == first, "alone or beside others"
    tokens = post(vectors, {"prompt": TEXTS[0]}, "/tokenize").json()["tokens"]
    assert embed(vectors, tokens)["data"][0]["embedding"] == first
    assert embed(vectors, [tokens])["usage"]["prompt_tokens"] == len(tokens)
    assert whole["usage"]["total_tokens"] > 2 * len(tokens)

def test_dimensions_and_base64(vectors):
    first = embed(vectors, TEXTS[0])["data"][0]["embedding"]
    short = embed(vectors, TEXTS[0], dimensions=16)["data"][0]["embedding"]
    length = math.hypot(*first[:16])
    assert short == pytest.approx([x / length for x in first[:16]], rel=1e-5)
    coded = embed(vectors, TEXTS[0], encoding_format="base64")["data"][0]["embedding"]
    assert struct.unpack("<384f", base64.b64decode(coded)) == pytest.approx(first, rel=1e-6)
    both = embed(vectors, TEXTS[0], dimensions=16, encoding_format="base64")["data"][0]["embedding"]
    assert struct.unpack("<16f", base64.b64decode(both)) == pytest.approx(short, rel=1e-6)


def test_more_inputs_than_are_read_at_a_time(vectors):
    given = [f"Text number {i}" for i in range(40)]
    answer = embed(vectors, given)
    assert len(answer["data"]) == 40
    assert embed(vectors, given[33])["data"][0]["embedding"] == answer["data"][33]["embedding"]


def test_the_openai_client(vectors):
    import openai
    client = openai.OpenAI(base_url=vectors.url + "/v1", api_key="none", max_retries=0)
    vector = client.embeddings.create(model="model", input=TEXTS[0], dimensions=8)
    assert len(vector.data[0].embedding) == 8


def test_what_cannot_be_embedded(vectors):
    for fields, param in (({"input": []}, "input"), ({"input": "a", "dimensions": 385}, "dimensions"),
                          ({"input": ["a", ""], "encoding_format": "int8"}, "encoding_format"),
                          ({"input": [[5], [99999]]}, "input[1]"), ({}, "input")):
        answer = post(vectors, fields, "/v1/embeddings")
        assert answer.status_code == 400, fields
        assert answer.json()["error"]["param"] == param


def test_rankings(vectors):
    asked = {"query": "What was calm?", "documents": [*TEXTS, {"text": "Rome"}]}
    ranked = post(vectors, asked, "/v1/rerank").json()
    scores = [r["relevance_score"] for r in ranked["results"]]
    assert len(scores) == 4 and scores == sorted(scores, reverse=True)
    assert all(0 <= s <= 1 for s in scores)
    for r in ranked["results"]:
        document = asked["documents"][r["index"]]
        assert r["document"]["text"] == (document if isinstance(document, str) else "Rome")
    best = post(vectors, asked | {"top_n": 1, "return_documents": False}, "/rerank").json()
    assert best["results"] == [{"index": ranked["results"][0]["index"],
                                "relevance_score": scores[0]}]
    other = post(vectors, asked | {"instruction": "Find the opposite"}, "/v1/rerank").json()
    assert sorted(r["relevance_score"] for r in other["results"]) != sorted(scores)
#The score is the share of "Yes" of the two words.
    prompt = ("<|im_start|>system\nJudge whether the Document meets the requirements based on the "
              "Query and the Instruct provided. Note that the answer can only be \"yes\" or \"no\"."
              "<|im_end|>\n<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant "
              "passages that answer the query\n<Query>: What was calm?\n<Document>: Rome<|im_end|>\n"
              "<|im_start|>assistant\n<think>\n\n</think>\n\n")
    tokens = post(vectors, {"prompt": prompt, "add_special_tokens": False}, "/tokenize").json()
    odds = []
    for word in ("Yes", "No"):
        (token,) = post(vectors, {"prompt": word, "add_special_tokens": False},
                        "/tokenize").json()["tokens"]
        scored = post(vectors, {"prompt": tokens["tokens"] + [token], "echo": True, "logprobs": 0,
                                "max_tokens": 0}).json()
        odds.append(math.exp(scored["choices"][0]["logprobs"]["token_logprobs"][-1]))
    share = odds[0] / sum(odds)
    rome = next(r for r in ranked["results"] if r["index"] == 3)
    assert rome["relevance_score"] == pytest.approx(share, abs=1e-3)


def test_models_that_are_not_made_for_it(server):
    for path, body in (("/v1/embeddings", {"input": "a"}),
                       ("/v1/rerank", {"query": "a", "documents": ["b"]})):
        for given in (body, {}):  # as at any other path that there is not
            answer = post(server, given, path)
            assert answer.status_code == 404
            assert answer.json()["error"]["code"] == "unknown_url"
            assert "--task" in answer.json()["error"]["message"]
        assert path not in httpx.get(server.url + "/openapi.json").json()["paths"]


def test_another_pooling_is_named(tmp_path):
    model = copy_of_the_demo(tmp_path, pooling(pooling_mode_mean_tokens=True))
    with pytest.raises(AssertionError, match="pools the last token alone"):
        with serving(model=model):
            pass
    with serving("--task", "generate", model=model) as s:
        assert post(s, {"input": "a"}, "/v1/embeddings").status_code == 404
