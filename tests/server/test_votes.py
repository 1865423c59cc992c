"""Hyper-scaling as a request: chains over one prompt, and the majority's answer."""
import pytest
from test_http import post

CHAT = "/v1/chat/completions"
USER = [{"role": "user", "content": "What is 3 + 4?"}]


def vote(server, votes, path="/v1/completions", **fields):
    prompt = {"messages": USER} if path == CHAT else {"prompt": "The answer is"}
    return post(server, prompt | {"max_tokens": 16, "temperature": 1, "seed": 2,
                                  "winnow_votes": votes} | fields, path)


@pytest.mark.parametrize("path", ["/v1/completions", CHAT])
def test_the_majority_answers(server, path):
    fields = {"guided_regex": "The answer is (7|8)\\."}
    answer = vote(server, {"chains": 9}, path, **fields).json()
    (choice,) = answer["choices"]
    votes = answer["winnow"]["votes"]
    assert len(votes["chains"]) == 9 and votes["votes"] == len(votes["agree"])
    cast = [c["vote"] for c in votes["chains"] if c["vote"]]
    assert votes["votes"] == cast.count(votes["answer"]) == max(map(cast.count, cast))
    text = choice["message"]["content"] if path == CHAT else choice["text"]
    assert text == votes["chains"][votes["agree"][0]]["text"] == f"The answer is {votes['answer']}."
    assert answer["usage"]["completion_tokens"] == sum(c["tokens"] for c in votes["chains"])
    assert votes["kv_reads"] == pytest.approx(sum(c["kv_reads"] for c in votes["chains"]))
    assert votes["prompt_reads"] > 0
    assert votes["peak_entries"] >= max(c["peak_entries"] for c in votes["chains"]) > 0


def test_chains_that_cannot_change_the_vote_are_cut(server):
    # Some answer at once; those that go on and on can no longer be more.
    cut = []
    for seed in range(1, 5):
        answer = vote(server, {"chains": 8, "by": "text"}, max_tokens=400, seed=seed,
                      guided_regex="7|8[0-9]{300}").json()
        votes = answer["winnow"]["votes"]
        gone = [c for c in votes["chains"] if c["finish_reason"] == "cut"]
        assert all(c["vote"] is None and c["tokens"] < 300 for c in gone)
        assert not gone or answer["choices"][0]["text"] == votes["answer"] == "7"
        assert not gone or votes["votes"] > len(gone)
        cut += gone
    assert cut


def test_the_same_seed_the_same_vote(server):
    assert (vote(server, {"chains": 5, "by": "text"}, max_tokens=2).json()["winnow"]["votes"]
            == vote(server, {"chains": 5, "by": "text"}, max_tokens=2).json()["winnow"]["votes"])


def test_what_does_not_go_with_a_vote_is_refused(server):
    for fields in ({"stream": True}, {"n": 2}, {"best_of": 3}, {"echo": True},
                   {"prompt": ["a", "b"]}):
        refused = vote(server, {"chains": 3}, **fields)
        assert refused.status_code == 400, fields
        assert refused.json()["error"]["param"] == "winnow_votes"
    assert vote(server, {"chains": 0}).json()["error"]["param"] == "winnow_votes.chains"
