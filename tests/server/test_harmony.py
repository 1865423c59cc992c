"""gpt-oss's way of answering: channels, calls of tools, effort. The demo model is held to it."""
import pytest
from conftest import serving
from test_fields import with_template
from test_http import post, rendered, streamed
from test_tools import TOOLS, check

CHAT = "/v1/chat/completions"
USER = [{"role": "user", "content": "How is the weather in Rome?"}]
TEMPLATE = """{{ "Reasoning: " + (reasoning_effort or "medium") }}
{%- for tool in tools or [] %}{{ tool.function.name }}{% endfor %}
{%- for m in messages %}
{%- if m.thinking and not m.tool_calls %}<|start|>assistant<|channel|>analysis<|message|>{{ m.thinking }}<|end|>{% endif %}
{%- if m.tool_calls %}<|start|>assistant to=functions.{{ m.tool_calls[0].function.name }}<|channel|>commentary json<|message|>
{{- m.tool_calls[0].function.arguments | tojson }}<|call|>
{%- else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|start|>assistant{% endif %}"""


@pytest.fixture(scope="module")
def oss(tmp_path_factory):
    model = with_template(tmp_path_factory.mktemp("oss"), TEMPLATE)
    with serving("--reasoning-format", "harmony", model=model) as s:
        yield s


def ask(server, **fields):
    answer = post(server, {"messages": USER, "max_tokens": 300, "temperature": 1} | fields, CHAT)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]


@pytest.mark.parametrize("seed", range(3))
def test_required_calls_are_in_the_models_own_format(oss, seed):
    choice = ask(oss, tools=TOOLS, tool_choice="required", seed=seed, thinking_token_budget=4)
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None
    (call,) = choice["message"]["tool_calls"]
    check(call)


def test_a_form_holds_in_the_final_channel(oss):
    begin = post(oss, {"prompt": "<|channel|>analysis<|message|>", "add_special_tokens": False},
                 "/tokenize").json()["tokens"]
    think = {str(token): 100 for token in begin}  # so it begins a thought, and spells marks in it
    fields = {"guided_regex": "(yes|no)!", "thinking_token_budget": 3, "seed": 1}
    message = ask(oss, **fields, logit_bias=think)["message"]
    assert message["content"] in ("yes!", "no!") and message["reasoning_content"]
    plain = ask(oss, **fields, separate_reasoning=False, logit_bias=think)["message"]
    assert plain["content"] == message["reasoning_content"] + message["content"]
    body = {"messages": USER, "logit_bias": think, "temperature": 1} | fields
    assert streamed(oss, body) == (message["reasoning_content"], message["content"])


def test_efforts_and_earlier_thoughts_reach_the_template(oss):
    assert "Reasoning: high" in rendered(oss, USER, reasoning_effort="high")
    said = {"role": "assistant", "content": "Fine.", "reasoning_content": "It is warm."}
    assert "analysis<|message|>It is warm." in rendered(oss, USER + [said] + USER)
    refused = post(oss, {"messages": USER, "reasoning_effort": "minimal"}, CHAT)
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "reasoning_effort"
