"""Generated tasks in plain English: facts to remember, and problems with worked steps.

A `Fact` is one or more sentences to be hidden in a text, with questions about them. A `Problem` is
a question whose answer needs steps. Training and evaluation draw from the same generators with
different seeds.
"""

from dataclasses import dataclass
from random import Random

CITIES = (
    "Lisbon Oslo Vienna Dublin Cairo Lima Quito Prague Warsaw Athens Madrid Berlin Paris Rome London "
    "Tokyo Kyoto Osaka Delhi Mumbai Seoul Hanoi Manila Jakarta Sydney Perth Boston Denver Chicago "
    "Dallas Seattle Toronto Montreal Havana Bogota Santiago Nairobi Lagos Accra Tunis Geneva Zurich "
    "Milan Turin Venice Naples Porto Seville Lyon Bordeaux Hamburg Munich Dresden Leipzig Krakow "
    "Riga Tallinn Helsinki Stockholm Bergen"
).split()
NAMES = (
    "Alice Ben Clara David Emma Frank Grace Henry Irene Jack Karen Leo Maria Nathan Olivia Peter "
    "Quinn Rosa Samuel Tina Victor Wendy Xavier Yvonne Zoe Arthur Bella Carlos Diana Edward Fiona "
    "George Hannah Ivan Julia Kevin Laura Martin Nora Oscar Paula Robert Sarah Thomas Ursula Walter"
).split()
COLOURS = "red blue green yellow black white silver golden purple orange brown grey".split()
OBJECTS = (
    "key letter book map lamp coin ring hat coat watch knife flute clock mirror candle box bottle "
    "scarf pen camera"
).split()
PLACES = (
    "kitchen garden library cellar attic stable office barn tower chapel workshop hall bedroom "
    "boathouse greenhouse pantry study garage museum theatre"
).split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass
class Fact:
    """Sentences to hide, in order, and (question, answer) pairs; `key` tells facts of one text apart."""

    key: str
    sentences: list[str]
    questions: list[tuple[str, str]]


@dataclass
class Problem:
    question: str
    answer: str
    result: str


# Facts ---------------------------------------------------------------------------------------------


def office_code(rng: Random) -> Fact:
    city, code = rng.choice(CITIES), rng.randrange(10000, 100000)
    sentence = f"The secret code of the {city} office is {code}."
    return Fact(f"code {city}", [sentence], [(f"What is the secret code of the {city} office?", sentence)])


def hidden_object(rng: Random) -> Fact:
    name, colour, thing = rng.choice(NAMES), rng.choice(COLOURS), rng.choice(OBJECTS)
    sentence = f"{name} keeps the {colour} {thing} in the {rng.choice(PLACES)}."
    question = f"Where does {name} keep the {colour} {thing}?"
    return Fact(f"object {name} {colour} {thing}", [sentence], [(question, sentence)])


def train_time(rng: Random) -> Fact:
    city, time = rng.choice(CITIES), f"{rng.randrange(1, 13)}:{rng.randrange(0, 60):02d}"
    sentence = f"The train to {city} leaves at {time} from platform {rng.randrange(1, 20)}."
    return Fact(f"train {city}", [sentence], [(f"When does the train to {city} leave?", sentence)])


def meeting(rng: Random) -> Fact:
    name, day = rng.choice(NAMES), rng.choice(DAYS)
    sentence = f"The meeting with {name} is on {day} in room {rng.randrange(100, 1000)}."
    return Fact(f"meeting {name}", [sentence], [(f"When and where is the meeting with {name}?", sentence)])


def phone_number(rng: Random) -> Fact:
    name, number = rng.choice(NAMES), f"{rng.randrange(100, 1000)}-{rng.randrange(1000, 10000)}"
    sentence = f"The phone number of {name} is {number}."
    return Fact(f"phone {name}", [sentence], [(f"What is the phone number of {name}?", sentence)])


def variable_chain(rng: Random, hops: int | None = None) -> Fact:
    """Variable tracking: K is set to a number, later variables copy one another; trace one back."""
    hops = rng.randrange(0, 4) if hops is None else hops
    names = rng.sample(LETTERS, hops + 1)
    value = rng.randrange(100, 1000)
    sentences = [f"Variable {names[0]} is set to {value}."]
    sentences += [f"Variable {new} is a copy of variable {old}." for old, new in zip(names, names[1:])]
    questions = []
    for depth, name in enumerate(names):
        steps = "".join(f"Variable {names[i]} is a copy of variable {names[i - 1]}. " for i in range(depth, 0, -1))
        steps += f"Variable {names[0]} is set to {value}."
        questions.append((f"What is the value of variable {name}?", f"{steps} The answer is {value}."))
    return Fact("variables " + " ".join(sorted(names)), sentences, questions[-2:])


FACTS = [office_code, hidden_object, train_time, meeting, phone_number, variable_chain]
FACT_WEIGHTS = [4, 2, 1, 1, 2, 4]


def fact(rng: Random) -> Fact:
    return rng.choices(FACTS, FACT_WEIGHTS)[0](rng)


def distinct_facts(rng: Random, count: int, draw=fact) -> list[Fact]:
    """Facts of one text that do not contradict each other: no key, and no variable, occurs twice."""
    facts: list[Fact] = []
    taken: set[str] = set()
    while len(facts) < count:
        new = draw(rng)
        names = set(new.key.split()[1:]) if new.key.startswith("variables") else {new.key}
        if not names & taken:
            facts.append(new)
            taken |= names
    return facts


# Problems ------------------------------------------------------------------------------------------


def digits(number: int) -> list[int]:
    return [int(c) for c in reversed(str(number))]


def addition_steps(a: int, b: int) -> str:
    """Column addition from the right."""
    column_a, column_b = digits(a), digits(b)
    steps, carry = [], 0
    for i in range(max(len(column_a), len(column_b))):
        terms = [column[i] for column in (column_a, column_b) if i < len(column)] + [carry] * (carry > 0)
        total = sum(terms)
        text = " + ".join(map(str, terms))
        steps.append(f"{text} = {total}" if len(terms) > 1 else f"{text} stays")
        carry = total // 10
        if carry:
            steps[-1] += f", write {total % 10}, carry {carry}"
    if carry:
        steps.append(f"write {carry}")
    return ". ".join(steps) + "."


def subtraction_steps(a: int, b: int) -> str:
    """Column subtraction from the right, for a >= b."""
    column_a, column_b = digits(a), digits(b)
    steps, borrow = [], 0
    for i, top in enumerate(column_a):
        low = (column_b[i] if i < len(column_b) else 0) + borrow
        if top >= low:
            steps.append(f"{top} - {low} = {top - low}")
            borrow = 0
        else:
            steps.append(f"{top} - {low}, borrow, {top + 10} - {low} = {top + 10 - low}")
            borrow = 1
    return ". ".join(steps) + "."


def addition(rng: Random) -> Problem:
    a, b = (rng.randrange(1, 10 ** rng.randrange(1, 4)) for _ in range(2))
    return Problem(f"What is {a} + {b}?", f"{addition_steps(a, b)} So {a} + {b} = {a + b}.", str(a + b))


def subtraction(rng: Random) -> Problem:
    b, a = sorted(rng.randrange(1, 10 ** rng.randrange(1, 4)) for _ in range(2))
    return Problem(f"What is {a} - {b}?", f"{subtraction_steps(a, b)} So {a} - {b} = {a - b}.", str(a - b))


def multiplication(rng: Random) -> Problem:
    a, b = rng.randrange(2, 10 ** rng.randrange(1, 4)), rng.randrange(2, 10)
    a = max(a, 2)
    parts = [d * 10**i for i, d in enumerate(digits(a)) if d][::-1]
    steps = ". ".join(f"{part} x {b} = {part * b}" for part in parts) + "."
    running = parts[0] * b
    for part in parts[1:]:
        steps += f" {running} + {part * b} = {running + part * b}."
        running += part * b
    return Problem(f"What is {a} x {b}?", f"{steps} So {a} x {b} = {a * b}.", str(a * b))


def division(rng: Random) -> Problem:
    b, quotient = rng.randrange(2, 10), rng.randrange(2, 13)
    a = b * quotient
    return Problem(f"What is {a} / {b}?", f"{b} x {quotient} = {a}. So {a} / {b} = {quotient}.", str(quotient))


def linear_equation(rng: Random) -> Problem:
    """a x + b = c, a x - b = c, a (x + b) = c, a x + b = d x + c."""
    a, b, x = rng.randrange(2, 10), rng.randrange(1, 20), rng.randrange(1, 13)
    kind = rng.randrange(4)
    if kind == 0:
        c = a * x + b
        question = f"{a}x + {b} = {c}"
        steps = f"Subtract {b} from both sides: {a}x = {c} - {b} = {c - b}. "
    elif kind == 1:
        c = a * x - b
        question = f"{a}x - {b} = {c}"
        steps = f"Add {b} to both sides: {a}x = {c} + {b} = {c + b}. "
    elif kind == 2:
        c = a * (x + b)
        question = f"{a}(x + {b}) = {c}"
        steps = f"Divide both sides by {a}: x + {b} = {c} / {a} = {x + b}. Subtract {b} from both sides: x = {x + b} - {b} = {x}."
        return Problem(f"Solve for x: {question}", f"{steps} The answer is {x}.", str(x))
    else:
        d = rng.randrange(1, a)
        c = (a - d) * x + b
        left = "x" if d == 1 else f"{d}x"
        rest = "x" if a - d == 1 else f"{a - d}x"
        question = f"{a}x + {b} = {left} + {c}"
        steps = f"Subtract {left} from both sides: {rest} + {b} = {c}. Subtract {b} from both sides: {rest} = {c} - {b} = {c - b}. "
        a -= d
    if a > 1:
        steps += f"Divide both sides by {a}: x = {a * x} / {a} = {x}. "
    return Problem(f"Solve for x: {question}", f"{steps}The answer is {x}.", str(x))


def word_problem(rng: Random) -> Problem:
    """Two-step stories in the manner of GSM8K."""
    name, other = rng.sample(NAMES, 2)
    thing = rng.choice("apples marbles stamps books pencils cards shells cookies stickers coins".split())
    a, b, c, n = rng.randrange(11, 90), rng.randrange(2, 40), rng.randrange(2, 10), rng.randrange(2, 10)
    kind = rng.randrange(7)
    if kind == 0:
        question = f"{name} has {a} {thing}. {other} gives {name} {b} more {thing}, and then {name} loses {c} of them. How many {thing} does {name} have now?"
        steps = f"After the gift, {name} has {a} + {b} = {a + b} {thing}. After losing {c}, {name} has {a + b} - {c} = {a + b - c} {thing}."
        result = a + b - c
    elif kind == 1:
        question = f"{name} buys {c} boxes with {n} {thing} in each box. {name} already had {a} {thing}. How many {thing} does {name} have in total?"
        steps = f"The boxes hold {c} x {n} = {c * n} {thing}. In total, {name} has {c * n} + {a} = {c * n + a} {thing}."
        result = c * n + a
    elif kind == 2:
        question = f"{name} has {c * n} {thing} and shares them equally among {c} friends. Each friend already had {b} {thing}. How many {thing} does each friend have now?"
        steps = f"Each friend gets {c * n} / {c} = {n} {thing}. Each friend now has {b} + {n} = {b + n} {thing}."
        result = b + n
    elif kind == 3:
        question = f"{name} collected {b} {thing} on Monday and {c} times as many on Tuesday. How many {thing} did {name} collect in total?"
        steps = f"On Tuesday, {name} collected {b} x {c} = {b * c} {thing}. In total, {name} collected {b} + {b * c} = {b + b * c} {thing}."
        result = b + b * c
    elif kind == 4:
        price, paid = c, c * n + b
        question = f"{name} buys {n} notebooks for {price} dollars each and pays with {paid} dollars. How many dollars does {name} get back?"
        steps = f"The notebooks cost {n} x {price} = {n * price} dollars. {name} gets back {paid} - {n * price} = {paid - n * price} dollars."
        result = paid - n * price
    elif kind == 5:
        question = f"{name} reads {c} pages every day. {other} reads {n} pages more per day than {name}. How many pages does {other} read in {b} days?"
        steps = f"{other} reads {c} + {n} = {c + n} pages per day. In {b} days, {other} reads {b} x {c + n} = {b * (c + n)} pages."
        result = b * (c + n)
    else:
        question = f"A bus carries {a} people. At the first stop {b % 10 + 1} people leave, and at the second stop {c} people board. How many people are on the bus now?"
        left = a - (b % 10 + 1)
        steps = f"After the first stop there are {a} - {b % 10 + 1} = {left} people. After the second stop there are {left} + {c} = {left + c} people."
        result = left + c
    return Problem(question, f"{steps} The answer is {result}.", str(result))


ARITHMETIC = [addition, subtraction, multiplication, division]
PROBLEMS = [addition, subtraction, multiplication, division, linear_equation, word_problem]
PROBLEM_WEIGHTS = [2, 2, 2, 1, 4, 4]


def arithmetic(rng: Random) -> Problem:
    return rng.choice(ARITHMETIC)(rng)


def problem(rng: Random) -> Problem:
    return rng.choices(PROBLEMS, PROBLEM_WEIGHTS)[0](rng)
