"""lm-evaluation-harness, through the package and through `winnow serve`, beside `winnow eval tasks`.

The tasks are the harness's arc_easy and gsm8k on local files. Both sides score the same model on the
same questions, so accuracies must agree within one standard error. Run with WINNOW_HARNESS_OUT=FILE,
the figures are written there.
"""

import json
import os
import random
import re
import subprocess
from pathlib import Path

import pytest
from conftest import BASE, DMS

pytest.importorskip("lm_eval")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import lm_eval
from lm_eval.tasks import TaskManager

import winnow.lm_eval

CASES = 48
CACHES = {"dense": (BASE, "dense"), "dms": (DMS, "dms")}

ARC = """
task: local_arc
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "Question: {{{{question}}}}\\nAnswer:"
doc_to_target: "{{{{choices.label.index(answerKey)}}}}"
doc_to_choice: "{{{{choices.text}}}}"
metric_list:
  - {{metric: acc, aggregation: mean, higher_is_better: true}}
  - {{metric: acc_norm, aggregation: mean, higher_is_better: true}}
"""

GSM8K = """
task: local_gsm8k
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: generate_until
doc_to_text: "Question: {{{{question}}}}\\nAnswer:"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["Question:"], do_sample: false, max_gen_toks: 64}}
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
    regexes_to_ignore: [",", "(?s).*#### ", "\\\\.$"]
filter_list:
  - name: flexible-extract
    filter:
      - {{function: regex, group_select: -1, regex_pattern: "(-?[$0-9.,]{{2,}})|(-?[0-9]+)"}}
      - {{function: take_first}}
"""


def variables(rng: random.Random, chains: int) -> tuple[str, list[str], list[int], int]:
    """A question about one of several variables that copy others; how it would be answered for each
    of them; the values; and which is asked."""
    letters = rng.sample("ABCDEFGHIJKLMNOPQRSTUVWXYZ", 2 * chains)
    values = rng.sample(range(100, 1000), chains)
    told = list(zip(letters[::2], letters[1::2], values))
    asked = rng.randrange(chains)
    wanted = told[asked][1]
    text = " ".join(
        f"Variable {first} is set to {value}. Variable {copy} is a copy of variable {first}."
        for first, copy, value in told
    )
    steps = [
        f"Variable {wanted} is a copy of variable {first}. The answer is {value}."
        for first, _, value in told
    ]
    return f"{text} What is the value of variable {wanted}?", steps, values, asked


def choose(rng: random.Random) -> dict:
    question, steps, _, asked = variables(rng, 4)
    choices = {"text": steps, "label": list("ABCD")}
    return {"question": question, "choices": choices, "answerKey": "ABCD"[asked]}


def answer(rng: random.Random) -> dict:
    question, _, values, asked = variables(rng, 2)
    return {"question": question, "answer": f"#### {values[asked]}"}


@pytest.fixture(scope="module")
def tasks(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tasks")
    for name, make, template in (("arc", choose, ARC), ("gsm8k", answer, GSM8K)):
        rng = random.Random(name)
        data = folder / f"{name}.jsonl"
        data.write_text("".join(json.dumps(make(rng)) + "\n" for _ in range(CASES)))
        (folder / f"{name}.yaml").write_text(template.format(file=data))
    return folder


@pytest.fixture(scope="module")
def figures():
    collected: dict = {}
    yield collected
    if out := os.environ.get("WINNOW_HARNESS_OUT"):
        Path(out).write_text(json.dumps(collected, indent=2) + "\n")


def harness(tasks: Path, kind: str, **arguments) -> dict:
    results = lm_eval.simple_evaluate(
        model=kind,
        model_args=arguments,
        tasks=["local_arc", "local_gsm8k"],
        task_manager=TaskManager(include_path=str(tasks), include_defaults=False),
        bootstrap_iters=0,
        cache_requests=False,
    )
    assert results is not None
    arc, gsm8k = results["results"]["local_arc"], results["results"]["local_gsm8k"]
    return {
        "arc": {"accuracy": arc["acc,none"], "accuracy_norm": arc["acc_norm,none"]},
        "gsm8k": {"accuracy": gsm8k["exact_match,flexible-extract"]},
    }


def eval_tasks(tasks: Path, binary: Path, model: Path, cache: str) -> dict:
    measured = {}
    for name in ("arc", "gsm8k"):
        command = [binary, "eval", "tasks", "--task", name, "--data", tasks / f"{name}.jsonl",
                   "--model", model, "--cache", cache, "--threads", "2", "--json"]
        command += ["--max-tokens", "64"] if name == "gsm8k" else []
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        measured[name] = json.loads(done.stdout)
    return measured


def check(measured: dict, ours: dict) -> None:
    for task, metrics in measured.items():
        for metric, value in metrics.items():
            mean, error = ours[task][metric], ours[task][metric + "_error"]
            assert abs(value - mean) <= error, (task, metric, value, mean, error)


@pytest.mark.parametrize("cache", CACHES)
def test_adapter_and_server_agree_with_eval_tasks(cache, tasks, binary, figures):
    model, rule = CACHES[cache]
    ours = eval_tasks(tasks, binary, model, rule)
    for task in ("arc", "gsm8k"):  # a model that is always right or wrong would show nothing
        assert ours[task]["questions"] == CASES and ours[task]["accuracy_error"] > 0.0
    adapter = harness(tasks, "winnow", model=str(model), cache=rule, threads=2)
    with serving(binary, model, rule) as url:
        served = harness(
            tasks, "local-completions", model=model.name, base_url=f"{url}/v1/completions",
            tokenizer=str(model), tokenizer_backend="huggingface", add_bos_token=True,
            num_concurrent=8, max_length=4096,
        )
    figures[cache] = {"winnow eval tasks": ours, "winnow.lm_eval": adapter, "winnow serve": served}
    check(adapter, ours)
    check(served, ours)


class serving:
    """A server, for the time of a `with`."""

    def __init__(self, binary: Path, model: Path, cache: str):
        command = [binary, "serve", "--model", model, "--cache", cache, "--port", "0",
                   "--threads", "2"]
        self.process = subprocess.Popen(
            list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def __enter__(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"https?://\S+", line)
        assert found, line
        return found.group().rstrip("/")

    def __exit__(self, *_) -> None:
        self.process.terminate()
        assert self.process.wait(40) == 0


def test_a_chat_begins_once():
    """Its template writes BOS, which tok_encode() would put before any other text."""
    lm = winnow.lm_eval.WinnowLM(str(DMS), threads=2)
    chat = lm.apply_chat_template([{"role": "user", "content": "Hi"}])
    assert lm.tok_encode(chat) == lm.tok_encode(chat, add_special_tokens=False)
    assert lm.tok_encode(chat).count(lm.eot_token_id) == 1
    assert lm.tok_encode("Hi")[0] == lm.eot_token_id
    assert lm.tok_encode("") == [lm.eot_token_id]


def test_rolling_loglikelihood_is_the_sum_over_windows(text):
    """A text longer than the context, each token scored once."""
    lm = winnow.lm_eval.WinnowLM(str(BASE), threads=2)

    class Request:
        args = (text[:1500],)

    (whole,) = lm.loglikelihood_rolling([Request()], disable_tqdm=True)
    tokens = lm.tok_encode(text[:1500], add_special_tokens=False)
    ((direct, _),) = lm._loglikelihood_tokens([(None, [lm.eot_token_id], tokens)], True)
    assert whole == pytest.approx(direct, rel=1e-6)
    short = 200
    lm_short = type("Short", (winnow.lm_eval.WinnowLM,), {"max_length": short})(str(BASE), threads=2)
    (windowed,) = lm_short.loglikelihood_rolling([Request()], disable_tqdm=True)
    assert windowed < whole  # less context, less likely
    assert len(tokens) > 2 * short


def test_greedy_continuations_are_told_from_others(text):
    lm = winnow.lm_eval.WinnowLM(str(BASE), threads=2)
    context = text[:400]
    (answer,) = lm.llm.generate(context, winnow.SamplingParams(max_tokens=5, ignore_eos=True))
    tokens = lm.tok_encode(context)
    greedy = (None, tokens, answer.token_ids)
    other = (None, tokens, [*answer.token_ids[:4], (answer.token_ids[4] + 1) % 8192])
    (a, is_greedy), (b, is_other) = lm._loglikelihood_tokens([greedy, other], True)
    assert is_greedy and not is_other and b < a < 0
