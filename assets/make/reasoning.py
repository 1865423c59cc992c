"""A task whose solutions are long chains: register programs, worked digit by digit.

    python reasoning.py --train 20000 --seed 1 --out train.jsonl        # training data of winnow
    python reasoning.py --test 200 --seed 2 --out test.jsonl            # as GSM8K is published

A problem gives some numbers and defines others by them, each by one operation modulo 1000; asked is the
last one. The solution works the operations out one after another, column by column from the right:

    Given pen:347. cup:589. oil = pen + cup. map = oil * 7. What is map?
    oil = pen:347 + cup:589; 7+9+0=16, 4+8+1=13, 3+5+1=09; oil:936. map = oil:936 * 7; ...

A column of + and * ends in carry and digit, one of - in borrow and digit. What a step needs is the next
definition, far back in the problem, and two values, given there or found any number of steps ago; the
columns of earlier steps are never needed again. Answers are checked by calculating them from the problem's
text. Lengths (prompt and solution) are spread evenly on a logarithmic scale.
"""

import argparse
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from random import Random

# One token each in the demo vocabulary, with a space in front.
NAMES = (
    "angle arm axis bag ball band bank bar basket battle bear bed bill bird block blood board boat body bond "
    "book bottle box branch bread brother bus button camp card cargo cart case cat cell center chain child "
    "church city clock cloud coat coffee column corn corner crate cup cursor day deal dog dollar door drink "
    "ear earth east edge egg eye face fact farm father field fig file fire fish flag floor flour foot fruit "
    "game garden gate gift girl glass goal god gold ground group guard guide hair hand hat head heart history "
    "horse hour house image iron item job judge key king land leg letter level light limit line list lock log "
    "loop lunch machine map mark market match matter milk mind minute mirror model money month mother mouth "
    "music name neck night noon note office oil orange order owner page paint pair pan paper park party path "
    "peace pen people phone picture piece pig plan plant point pool port pot power price rain range rate "
    "report ring river road room root rose rule sand scale school score sea season seed sheep ship shop side "
    "sign silver sister son song sound square step stick stone store story street string sugar sun table tail "
    "tank task tax team test ticket time tool top town track train tree trip type uncle unit value view voice "
    "wall war watch water way week wheel wife wind window wine wood word work world yard year"
).split()

MODULUS = 1000
DIGITS = 3
STEP_TOKENS = 56  # of a definition and its solution; see Problem.tokens
GIVEN_TOKENS = 6
OTHER_TOKENS = 20  # special tokens, question, last sentence
SHORTEST, LONGEST = 220, 3900

QUESTION_WEIGHT = 0.05  # in training: what a problem says cannot be foretold


@dataclass
class Problem:
    question: str
    solution: str
    result: int
    steps: int
    tokens: int  # of prompt and solution


def column(operator: str, a: int, b: int, carry: int) -> tuple[int, str]:
    """One column: its carry (or borrow), and how it is written."""
    total = {"+": a + b + carry, "*": a * b + carry, "-": a - b - carry}[operator]
    carried, digit = abs(total // 10), total % 10
    return carried, f"{a}{operator}{b}{'-' if operator == '-' else '+'}{carry}={carried}{digit}"


def columns(operator: str, a: int, b: int) -> tuple[int, list[str]]:
    """a operator b modulo 1000, column by column; b is a single digit for *."""
    carry, result, written = 0, 0, []
    for place in range(DIGITS):
        top = a // 10**place % 10
        carry, text = column(operator, top, b if operator == "*" else b // 10**place % 10, carry)
        result += int(text[-1]) * 10**place
        written.append(text)
    return result, written


def draw(rng: Random, steps: int, names: list[str]) -> Problem:
    given = 3 + steps // 6
    order = rng.sample(names, given + steps)
    values = {name: rng.randrange(MODULUS) for name in order[:given]}
    problem = [f"{name}:{value:03d}." for name, value in values.items()]
    solution = []
    for i, name in enumerate(order[given:], given):
        # A chain, each of whose links takes in something from any time before.
        known = order[:i]
        first = known[-1] if rng.random() < 0.8 else rng.choice(known)
        operator = rng.choices("+-*", [4, 3, 2])[0]
        if operator == "*":
            second, operand = str(digit := rng.randrange(2, 10)), digit
            written = second
        else:
            second = rng.choice([other for other in known if other != first])
            operand = values[second]
            written = f"{second}:{operand:03d}"
        problem.append(f"{name} = {first} {operator} {second}.")
        value, work = columns(operator, values[first], operand)
        solution.append(f"{name} = {first}:{values[first]:03d} {operator} {written}; {', '.join(work)}; {name}:{value:03d}.")
        values[name] = value
    question = f"Given {' '.join(problem)} What is {order[-1]}?"
    answer = f" {' '.join(solution)} The answer is {value:03d}."
    tokens = OTHER_TOKENS + GIVEN_TOKENS * given + STEP_TOKENS * steps
    return Problem(question, answer, value, steps, tokens)


def evaluate(question: str) -> int:
    """The answer, calculated from the problem's text alone."""
    values: dict[str, int] = {}
    for name, value in re.findall(r"(\w+):(\d+)\.", question):
        values[name] = int(value)
    for name, first, operator, second in re.findall(r"(\w+) = (\w+) ([-+*]) (\w+)\.", question):
        other = int(second) if second.isdigit() else values[second]
        result = {"+": values[first] + other, "-": values[first] - other, "*": values[first] * other}[operator]
        values[name] = result % MODULUS
    return values[re.search(r"What is (\w+)\?", question)[1]]


def problem(rng: Random, shortest: int = SHORTEST, longest: int = LONGEST) -> Problem:
    length = math.exp(rng.uniform(math.log(shortest), math.log(longest)))
    steps = max(1, int((length - OTHER_TOKENS - 3 * GIVEN_TOKENS) / (STEP_TOKENS + GIVEN_TOKENS / 6)))
    drawn = draw(rng, steps, NAMES)
    assert evaluate(drawn.question) == drawn.result, drawn
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--train", type=int, metavar="N", help="problems with solutions, as training data")
    kind.add_argument("--test", type=int, metavar="N", help="problems with answers")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--shortest", type=int, default=SHORTEST, help="tokens of the shortest problem and solution")
    parser.add_argument("--longest", type=int, default=LONGEST)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    rng = Random(args.seed)
    with open(args.out, "w", encoding="utf-8") as out:
        for _ in range(args.train or args.test):
            drawn = problem(rng, args.shortest, args.longest)
            if args.train:
                asked = {"text": f"<|user|>{drawn.question}<|assistant|>", "weight": QUESTION_WEIGHT}
                row = {"parts": [asked, {"text": f"{drawn.solution}<|end_of_text|>"}]}
            else:
                row = {"question": drawn.question, "answer": f"{drawn.solution}\n#### {drawn.result:03d}",
                       "steps": drawn.steps, "tokens": drawn.tokens}
            out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
