"""A chat on the terminal, with what the cache holds after each answer.

    python chat.py MODEL [--temperature T] [--max-tokens N]

An empty line ends it. Ctrl-C ends an answer.
"""

import argparse

import winnow


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--max-tokens", type=int, default=512)
    arguments = parser.parse_args()

    llm = winnow.LLM(arguments.model)
    params = winnow.SamplingParams(
        max_tokens=arguments.max_tokens, temperature=arguments.temperature
    )
    messages: list[winnow.Message] = []
    while True:
        try:
            question = input("> ")
        except EOFError:
            break
        if not question:
            break
        messages.append({"role": "user", "content": question})
        stream = llm.stream(llm.chat_prompt(messages), params)
        try:
            for chunk in stream:
                print(chunk.text, end="", flush=True)
        except KeyboardInterrupt:
            stream.close()
        (answer,) = stream.completions()
        kv = answer.kv
        print(f"\n[{kv.bytes / 1024:.0f} KiB of cache, {kv.compression_ratio:.1f}x smaller]")
        messages.append({"role": "assistant", "content": answer.text})


if __name__ == "__main__":
    main()
