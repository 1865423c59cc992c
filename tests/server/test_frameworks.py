"""Frameworks with their defaults, each as its users call it."""
import os
import warnings

import openai
import pytest
from conftest import MODEL
from pydantic import BaseModel, Field

os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LANGSMITH_TRACING": "false"}
warnings.filterwarnings("ignore")
USER = [{"role": "user", "content": "Bob is 5 years old."}]


class Person(BaseModel):
    name: str = Field(max_length=9)
    age: int = Field(ge=0, le=120)


@pytest.fixture(scope="module")
def url(server):
    return server.url + "/v1"


def test_langchain(url):
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI, OpenAI
    settings = {"model": MODEL, "base_url": url, "api_key": "none", "max_retries": 0,
                "temperature": 0}
    chat = ChatOpenAI(max_tokens=8, **settings)
    whole = chat.invoke("Hi").content
    assert whole and "".join(piece.content for piece in chat.stream("Hi")) == whole
    assert len(chat.batch(["a", "b", "c"])) == 3
    long = ChatOpenAI(max_tokens=400, **settings)
    for method in ("json_schema", "function_calling"):
        assert isinstance(long.with_structured_output(Person, method=method).invoke("Bob is 5"),
                          Person), method

    def add(x: int) -> int:
        "Adds."
        return x
    calls = long.bind_tools([add], tool_choice="any").invoke("Add 3").tool_calls
    assert calls and all(isinstance(call["args"]["x"], int) for call in calls)
    assert chat.invoke([HumanMessage("Hi"),
                        AIMessage("", tool_calls=[{"name": "add", "args": {"x": 1}, "id": "c1"}]),
                        ToolMessage("1", tool_call_id="c1")]).content
    assert OpenAI(max_tokens=8, **settings).invoke("The sea")
    assert ChatOpenAI(max_tokens=16, use_responses_api=True, **settings).invoke("Hi").content


def test_litellm(url):
    import litellm
    litellm.suppress_debug_info = True
    for provider in ("openai", "hosted_vllm"):
        settings = {"model": f"{provider}/{MODEL}", "api_base": url, "api_key": "none",
                    "max_retries": 0, "messages": USER, "temperature": 0}
        whole = litellm.completion(max_tokens=8, **settings).choices[0].message.content
        pieces = litellm.completion(max_tokens=8, stream=True, **settings)
        assert "".join(p.choices[0].delta.content or "" for p in pieces) == whole
        answer = litellm.completion(max_tokens=400, response_format=Person, **settings)
        assert Person.model_validate_json(answer.choices[0].message.content)
    assert litellm.responses(model=f"openai/{MODEL}", input="Hi", api_base=url, api_key="none",
                             max_output_tokens=8).output


def test_llama_index(url):
    from llama_index.core.llms import ChatMessage
    from llama_index.llms.openai_like import OpenAILike
    settings = {"model": MODEL, "api_base": url, "api_key": "none", "context_window": 4096,
                "max_retries": 0, "temperature": 0}
    chat = OpenAILike(is_chat_model=True, max_tokens=8, **settings)
    messages = [ChatMessage(role="user", content="Hi")]
    whole = chat.chat(messages).message.content
    assert "".join(piece.delta for piece in chat.stream_chat(messages)) == whole
    text = OpenAILike(is_chat_model=False, max_tokens=8, **settings)
    assert str(text.complete("The sea"))
    assert "".join(piece.delta for piece in text.stream_complete("The sea"))


def test_instructor(url):
    import instructor
    for mode in ("TOOLS", "JSON_SCHEMA"):
        client = instructor.from_openai(openai.OpenAI(base_url=url, api_key="none", max_retries=0),
                                        mode=getattr(instructor.Mode, mode))
        assert isinstance(client.chat.completions.create(
            model=MODEL, messages=USER, response_model=Person, max_retries=0, max_tokens=400,
            temperature=0), Person), mode


def test_pydantic_ai(url):
    from pydantic_ai import Agent, NativeOutput
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    model = OpenAIChatModel(MODEL, provider=OpenAIProvider(
        openai_client=openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0)))
    short = {"max_tokens": 16, "temperature": 0.0}
    assert Agent(model, system_prompt="Be brief", model_settings=short).run_sync("Hi").output
    long = {"max_tokens": 400, "temperature": 0.0}
    for output in (Person, NativeOutput(Person)):
        answer = Agent(model, output_type=output, model_settings=long, retries=0).run_sync("Bob is 5")
        assert isinstance(answer.output, Person)
