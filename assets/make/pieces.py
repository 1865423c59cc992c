"""Windows of text, of text with hidden facts and questions, and of worked problems.

Every window starts with `<|begin_of_text|>`. Tokens carry weights: an answer that must be recalled
counts more than running text, a random question less.
"""

from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
from tokenizers import Tokenizer

import tasks
from corpus import gsm8k_problems

RECALL_WEIGHT = 8.0
QUESTION_WEIGHT = 0.2
SOURCE_TEMPERATURE = 0.9


class Encoder:
    def __init__(self, path: Path):
        self.tokenizer = Tokenizer.from_file(str(path))
        self.bos, self.eos, self.user, self.assistant = range(4)
        vocabulary = self.tokenizer.get_vocab_size()
        texts = [self.tokenizer.decode([i], skip_special_tokens=False) for i in range(vocabulary)]
        self.ends_sentence = np.array([t.endswith((".", "!", "?")) for t in texts])
        self.starts_with_space = np.array([t[:1].isspace() for t in texts])

    def __call__(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids) -> str:
        return self.tokenizer.decode(list(ids), skip_special_tokens=False)


@dataclass
class Piece:
    """Tokens to insert into a text, with their loss weights."""

    ids: list[int]
    weights: list[float]


def sentence_piece(encoder: Encoder, sentence: str) -> Piece:
    ids = encoder(" " + sentence)
    return Piece(ids, [0.5] * len(ids))


def question_prompt(question: str) -> str:
    return f"\n\nQuestion: {question}\nAnswer:"


def question_piece(encoder: Encoder, question: str, answer: str, chat: bool, text_follows: bool) -> Piece:
    """A question and its answer, as running text or as a turn of a chat."""
    if chat:
        asked = [encoder.user, *encoder(question), encoder.assistant]
        answered = [*encoder(answer), encoder.eos]
    else:
        asked, answered = encoder(question_prompt(question)), encoder(" " + answer)
        if text_follows:
            answered += encoder("\n\n")
    return Piece(asked + answered, [QUESTION_WEIGHT] * len(asked) + [RECALL_WEIGHT] * len(answered))


def boundaries(encoder: Encoder, hay: np.ndarray) -> np.ndarray:
    """Positions between two sentences."""
    return np.flatnonzero(encoder.ends_sentence[hay[:-1]] & encoder.starts_with_space[hay[1:]]) + 1


def hide(encoder: Encoder, hay: np.ndarray, pieces: list[tuple[float, Piece]]) -> Piece:
    """Inserts pieces at relative depths in [0, 1], each at the nearest sentence end before it.

    Pieces of equal depth keep their order; depth 1 is the very end.
    """
    ends = boundaries(encoder, hay)
    placed = []
    for depth, piece in pieces:
        position = len(hay)
        if depth < 1:
            index = np.searchsorted(ends, depth * len(hay), side="right") - 1
            position = int(ends[index]) if index >= 0 else 0
        placed.append((position, piece))
    placed.sort(key=lambda item: item[0])
    whole, start = Piece([], []), 0
    for position, piece in [*placed, (len(hay), Piece([], []))]:
        text = hay[start:position].tolist()
        whole.ids += text + piece.ids
        whole.weights += [1.0] * len(text) + piece.weights
        start = position
    return whole


class WindowSource:
    """Draws windows of `length` + 1 tokens; `tokens` holds the streams that corpus.py made."""

    def __init__(self, tokens: Path, tokenizer: Path, gsm8k: Path, length: int, seed):
        self.length = length
        self.rng = Random(seed)
        self.encoder = Encoder(tokenizer)
        self.streams = dict(np.load(tokens))
        self.sources = list(self.streams)
        self.source_weights = [len(self.streams[s]) ** SOURCE_TEMPERATURE for s in self.sources]
        self.school = list(gsm8k_problems(gsm8k))

    def draw(self, mix) -> Piece:
        """A window; `mix` = shares of (text, recall, problems)."""
        piece = self.rng.choices([self.text, self.recall, self.problems], mix)[0]()
        size = self.length + 1
        assert len(piece.ids) >= size, len(piece.ids)
        return Piece(piece.ids[:size], piece.weights[:size])

    def slice(self, size: int) -> np.ndarray:
        stream = self.streams[self.rng.choices(self.sources, self.source_weights)[0]]
        start = self.rng.randrange(len(stream) - size)
        return stream[start : start + size]

    def text(self) -> Piece:
        return Piece([self.encoder.bos, *self.slice(self.length).tolist()], [1.0] * (self.length + 1))

    def recall(self) -> Piece:
        """Text with hidden facts; half of the questions come at random places, half at the end."""
        rng, encoder = self.rng, self.encoder
        chat = rng.random() < 0.3
        pieces: list[tuple[float, Piece]] = []
        last: list[tuple[float, Piece]] = []
        # An odd fact stands alone in the text, a dense text holds many.
        for fact in tasks.distinct_facts(rng, rng.choice([1, 2, 4, 6, 8, 12])):
            depths = sorted(rng.uniform(0, 1) for _ in fact.sentences)
            pieces += [(d, sentence_piece(encoder, s)) for d, s in zip(depths, fact.sentences)]
            for question, answer in fact.questions:
                # A chat turn in the middle of a text would be odd, so chats ask at the end only.
                if not chat and rng.random() < 0.6:
                    depth = rng.uniform(depths[-1], 1) * 0.999
                    pieces.append((depth, question_piece(encoder, question, answer, False, text_follows=True)))
                if rng.random() < 0.7:
                    last.append((1.0, question_piece(encoder, question, answer, chat, text_follows=False)))
        rng.shuffle(last)
        pieces += last
        needed = sum(len(piece.ids) for _, piece in pieces)
        hay = self.slice(max(self.length - needed, 64))
        whole = hide(encoder, hay, pieces)
        return Piece([encoder.bos, *whole.ids], [1.0, *whole.weights])

    def problems(self) -> Piece:
        """Chats with one worked problem each, until the window is full."""
        rng, encoder = self.rng, self.encoder
        whole = Piece([], [])
        while len(whole.ids) <= self.length:
            problem = rng.choice(self.school) if rng.random() < 0.25 else tasks.problem(rng)
            asked = [encoder.bos, encoder.user, *encoder(problem.question), encoder.assistant]
            answered = [*encoder(problem.answer), encoder.eos]
            whole.ids += asked + answered
            whole.weights += [QUESTION_WEIGHT] * len(asked) + [1.0] * len(answered)
        return whole
