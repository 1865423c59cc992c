"""Thoughts: told apart, ended in time, and before an answer that has a form."""
import pytest
from conftest import serving
from test_fields import with_template
from test_http import post, rendered, streamed

CHAT = "/v1/chat/completions"
USER = [{"role": "user", "content": "Tell me of the sea."}]
# As DeepSeek R1 and Qwen3-Thinking have it: the prompt begins the thought. As Qwen3 has it: a switch.
TEMPLATE = ("{% for m in messages %}{{m.content}}\n{% endfor %}<think>\n"
            "{% if enable_thinking is defined and not enable_thinking %}\n</think>\n\n{% endif %}")


@pytest.fixture(scope="module")
def thinker(tmp_path_factory):
    model = with_template(tmp_path_factory.mktemp("thinker"), TEMPLATE)
    with serving("--reasoning-format", "think", model=model) as s:
        yield s


def ask(server, **fields):
    answer = post(server, {"messages": USER, "max_tokens": 60, "temperature": 0} | fields, CHAT)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_budget_ends_the_thought_and_the_answer_goes_on(thinker):
    answer = ask(thinker, thinking_token_budget=5)
    message = answer["choices"][0]["message"]
    assert message["reasoning_content"] and message["content"]
    assert "think>" not in message["reasoning_content"] + message["content"]
    spent = answer["usage"]["completion_tokens_details"]["reasoning_tokens"]
    assert 5 <= spent < 5 + 10  # and those that spell the mark
    zero = ask(thinker, thinking_budget=0)["choices"][0]["message"]
    assert "reasoning_content" not in zero and zero["content"]


def test_streams_tell_the_same_thought(thinker):
    fields = {"thinking_token_budget": 8, "seed": 3, "temperature": 1}
    whole = ask(thinker, **fields)["choices"][0]["message"]
    assert streamed(thinker, {"messages": USER, "max_tokens": 60} | fields) == (
        whole["reasoning_content"], whole["content"])


def test_a_form_holds_behind_the_thought(thinker):
    answer = ask(thinker, thinking_token_budget=4, guided_regex="(yes|no)!")
    message = answer["choices"][0]["message"]
    assert message["content"] in ("yes!", "no!") and message["reasoning_content"]
    off = ask(thinker, enable_thinking=False, guided_regex="(yes|no)!")["choices"][0]["message"]
    assert off["content"] in ("yes!", "no!") and "reasoning_content" not in off


def test_what_is_told(thinker):
    fields = {"thinking_token_budget": 5}
    hidden = ask(thinker, include_reasoning=False, **fields)["choices"][0]["message"]
    assert hidden["content"] and "reasoning_content" not in hidden
    for together in ({"separate_reasoning": False}, {"reasoning_format": "none"}):
        message = ask(thinker, **together, **fields)["choices"][0]["message"]
        assert "</think>" in message["content"] and "reasoning_content" not in message


def test_switches_reach_the_template(thinker):
    assert rendered(thinker, USER).endswith("<think>\n")
    for off in ({"enable_thinking": False}, {"reasoning_effort": "none"}):
        assert ask(thinker, **off)["choices"][0]["message"].get("reasoning_content") is None
    answer = post(thinker, {"messages": USER, "max_tokens": 1, "enable_thinking": True}, CHAT)
    assert "x-winnow-ignored" not in answer.headers
    assert post(thinker, {"messages": USER, "reasoning_effort": "huge"}, CHAT).json()[
        "error"]["param"] == "reasoning_effort"


def test_a_model_that_does_not_think(server):
    for fields in ({"reasoning_effort": "high"}, {"enable_thinking": True}):
        refused = post(server, {"messages": USER, "max_tokens": 1} | fields, CHAT)
        assert refused.status_code == 400 and refused.json()["error"]["param"] in fields
    for fields in ({"reasoning_effort": "none"}, {"enable_thinking": False}):
        answer = post(server, {"messages": USER, "max_tokens": 1} | fields, CHAT)
        assert answer.headers["x-winnow-ignored"] == list(fields)[0]
    answer = post(server, {"input": "Hi", "max_output_tokens": 1, "reasoning": {"effort": "low"}},
                  "/v1/responses")
    assert answer.headers["x-winnow-ignored"] == "reasoning_effort"
    answer = post(server, {"messages": USER, "thinking_token_budget": 5}, CHAT)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "thinking_token_budget"
