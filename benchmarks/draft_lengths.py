#!/usr/bin/env python3
"""Simulates how many tokens of a draft to ask for (src/engine/drafter.h), against fixed lengths: tokens per decode
step of the model, where each drafted token is right with some probability. Prints a Markdown table.

    benchmarks/draft_lengths.py [--draft-cost 0.1] [--row-cost 0.03] [--most 8]
"""
import argparse
import random


class Pause:
    def __init__(self):
        self.steps = self.left = 0

    def wait(self):
        waits = self.left > 0
        self.left -= waits
        return waits

    def note(self, wrong):
        self.steps = min(max(4 * self.steps, 1), 64) if wrong else 0
        self.left = self.steps


class LookupLength:
    def __init__(self):
        self.length, self.pause = 2, Pause()

    def next(self, most):
        return 0 if self.pause.wait() else min(self.length, most)

    def observe(self, drafted, accepted):
        if accepted > 0:
            self.length = max(self.length, min(2 * drafted, 15)) if accepted == drafted else accepted + 1
        else:
            self.length = max(1, drafted // 2)
        self.pause.note(accepted == 0)


class ModelLength:
    def __init__(self):
        self.right, self.tried, self.pause = 2.0, 3.0, Pause()

    def next(self, most):
        if self.pause.wait():
            return 0
        length = 1
        while length < most and (self.right / self.tried) ** (length + 1) >= 0.4:
            length += 1
        return length

    def observe(self, drafted, accepted):
        tried = accepted + (accepted < drafted)
        self.right = self.right * 0.96 ** tried + accepted
        self.tried = self.tried * 0.96 ** tried + tried
        self.pause.note(accepted == 0 and self.right / self.tried < 0.2)


class FixedLength:
    def __init__(self, length):
        self.length = length

    def next(self, most):
        return min(self.length, most)

    def observe(self, drafted, accepted):
        pass


def speed(length, probability, options, tokens=40000):
    chance = random.Random(1)
    made, time = 0, 0.0
    while made < tokens:
        drafted = length.next(options.most)
        accepted = 0
        while accepted < drafted and chance.random() < probability:
            accepted += 1
        if drafted > 0:
            length.observe(drafted, accepted)
        time += 1.0 + drafted * (options.draft_cost + options.row_cost)
        made += accepted + 1
    return made / time


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--draft-cost", type=float, default=0.1, help="of a drafted token, in decode steps")
    parser.add_argument("--row-cost", type=float, default=0.03, help="of its verification, in decode steps")
    parser.add_argument("--most", type=int, default=8, help="tokens of a draft")
    options = parser.parse_args()
    print("| right with probability | `LookupLength` | `ModelLength` | best fixed length |\n|---|---|---|---|")
    for probability in (0.1, 0.3, 0.5, 0.7, 0.9):
        best, which = max((speed(FixedLength(n), probability, options), n) for n in range(options.most + 1))
        print(f"| {probability} | {speed(LookupLength(), probability, options):.2f} | "
              f"{speed(ModelLength(), probability, options):.2f} | {best:.2f} ({which or 'none'}) |")


if __name__ == "__main__":
    main()
