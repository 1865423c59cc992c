"""lm-evaluation-harness on winnow: the model "winnow" of lm_eval.

    python -m winnow.lm_eval run --model winnow --model_args model=DIR,cache=dms --tasks hellaswag

is lm_eval's own command line with that model. Arguments of `--model_args` are those of `winnow.LLM`;
`max_gen_toks` is the most that is generated where a task does not say. Batches form by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import normalize_gen_kwargs
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from tqdm import tqdm

from ._llm import LLM
from ._results import Completion
from ._sampling import SamplingParams

BATCH = 256
"""Requests passed to the engine at a time."""


@register_model("winnow")
class WinnowLM(TemplateLM):  # type: ignore[misc]
    """lm_eval's view of a winnow.LLM."""

    def __init__(
        self,
        model: str,
        max_gen_toks: int = 256,
        batch_size: Any = None,
        max_batch_size: Any = None,
        **kwargs: Any,
    ) -> None:
        """`batch_size` and `max_batch_size` come from lm_eval and are not needed."""
        super().__init__()
        device = kwargs.pop("device", None) or "cpu"
        self.llm = LLM(model, device=device, **kwargs)
        self.max_gen_toks = max_gen_toks

    @property
    def eot_token_id(self) -> int:
        """The prefix of a text without context: BOS, otherwise the end-of-text token."""
        special = self.llm.tokenize("")
        if not special:
            raise NotImplementedError("the tokenizer adds no token before a text")
        return special[0]

    @property
    def max_length(self) -> int:
        return self.llm.info.max_positions

    @property
    def tokenizer_name(self) -> str:
        return "winnow"

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **kwargs: Any
    ) -> list[int]:
        """By default nothing is prepended to a text that a template has begun."""
        if add_special_tokens is None:
            plain = self.llm.tokenize(string, add_special=False)
            add_special_tokens = not plain or plain[:1] != self.llm.tokenize("")[:1]
        return self.llm.tokenize(string, add_special=add_special_tokens)

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        if not add_generation_prompt:
            raise NotImplementedError("winnow cannot continue an assistant's message")
        return self.llm.render_chat(chat_history)

    def _loglikelihood_tokens(
        self,
        requests: Sequence[tuple[tuple[str, str] | None, list[int], list[int]]],
        disable_tqdm: bool = False,
        **kwargs: Any,
    ) -> list[tuple[float, bool]]:
        prompts = [(context + end)[-self.max_length :] for _, context, end in requests]
        params = SamplingParams(max_tokens=0, logprobs=1, prompt_logprobs=True)
        completions = self._complete(prompts, [params] * len(prompts), disable_tqdm)
        return [
            _score(completion, len(continuation))
            for completion, (_, _, continuation) in zip(completions, requests)
        ]

    def loglikelihood_rolling(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        windows = []
        owners = []
        for index, (text,) in enumerate(request.args for request in requests):
            for pair in get_rolling_token_windows(
                token_list=self.tok_encode(text, add_special_tokens=False),
                prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length - 1,
                context_len=1,
            ):
                windows.append((None, *make_disjoint_window(pair)))
                owners.append(index)
        sums = [0.0] * len(requests)
        for index, (score, _) in zip(owners, self._loglikelihood_tokens(windows, disable_tqdm)):
            sums[index] += score
        return sums

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        prompts = []
        params = []
        for index, (context, settings) in enumerate(request.args for request in requests):
            wanted = normalize_gen_kwargs(settings, self.max_gen_toks)
            room = self.max_length - wanted["max_gen_toks"]
            prompts.append(self.tok_encode(context)[-room:])
            params.append(
                SamplingParams(
                    max_tokens=wanted["max_gen_toks"],
                    temperature=wanted.get("temperature", 0.0),
                    top_p=wanted.get("top_p", 1.0),
                    seed=index,
                    stop=[text for text in wanted["until"] if text],
                )
            )
        return [answer.text for answer in self._complete(prompts, params, disable_tqdm)]

    def _complete(
        self,
        prompts: Sequence[list[int]],
        params: Sequence[SamplingParams],
        disable_tqdm: bool,
    ) -> Iterable[Completion]:
        completions: list[Completion] = []
        with tqdm(total=len(prompts), disable=disable_tqdm, desc="winnow") as bar:
            for first in range(0, len(prompts), BATCH):
                end = first + BATCH
                completions += self.llm.generate(prompts[first:end], params[first:end])
                bar.update(len(completions) - bar.n)
        return completions


def _score(completion: Completion, length: int) -> tuple[float, bool]:
    """The log-likelihood of the last `length` tokens, and whether each was the most likely one."""
    scores = completion.prompt_logprobs
    assert scores is not None
    count = min(length, len(scores))
    is_greedy = scores.top_token_ids[-count:, 0] == scores.token_ids[-count:]
    return float(scores.logprobs[-count:].sum(dtype="float64")), bool(is_greedy.all())


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
