"""Random expressions as cases for jinja_test: fuzz.py SEED COUNT > file, then run the test with
WINNOW_JINJA_CASES=file. Left out is what we do not take over from Jinja2: addresses in the output,
complex numbers, what escaping marks as safe, and slices of what has none (constant folding makes them
undefined)."""
import copy
import json
import random
import re
import sys
import warnings

from make_language_cases import CONTEXT
from oracle import case

STRINGS = ["''", "'a'", "'Hello, World'", "'a b  c'", "'x,y'", "' pad '", "'Ünï 世'", "'12'", "'3.5'",
           "\"it's\"", "'a\\nb'", "'B'", "'%s-%d'", "'%5.1f|%x'", "'{}:{:>4}'",
           "'{0!r:^7}'", "'<b>&amp;'"]
NUMBERS = ["0", "1", "2", "-1", "3", "10", "2.5", "0.5", "-1.5", "100"]
NAMES = list(CONTEXT) + ["missing"]
PATHS = ["ms[0]", "ms[1].role", "d.a", "deep.a", "xs[0]", "words[1]", "d['b']", "ms[-1]['content']"]
FILTERS = """trim length upper lower capitalize title first last list string int float abs round
reverse|list sort unique|list min max sum join join(',') tojson default('x') default('y',true)
items|list dictsort map('string')|list map('upper')|list select|list reject|list
select('string')|list map('length')|list select('number')|list map(attribute='role')|list
batch(2)|list batch(3,'x')|list slice(2)|list slice(3,0)|list truncate(5) truncate(6,true,'.',0) wordcount
center(9) urlencode striptags filesizeformat format(1) format('a',2) forceescape groupby('role')|list
groupby(0)|list selectattr('role')|list replace('a','b') indent(2) trim('a') round(1) int(5) join('-')|upper
tojson(indent=1) sort(reverse=true) select('defined')|list rejectattr('n','defined')|list""".split()
TESTS = ["defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "integer",
         "float", "boolean", "true", "false", "odd", "even", "divisibleby 2", "in [1,2,'a']", "eq 1",
         "equalto 'a'", "ne none", "gt 1", "lt 'b'", "lower", "upper", "divisibleby(3)", "ge(0)"]
METHODS = """upper() lower() strip() split() split(',') rsplit(none,1) startswith('a') endswith('c')
replace('a','ZZ') title() capitalize() find('a') count('a') items()|list keys()|list values()|list
get('a') get('q',1) index(1) join(['a','b']) isdigit() center(9,'*') ljust(5) rjust(6,'.') zfill(4) swapcase() format(1,'a') expandtabs(3) find('a',1)
count('a',0,2) startswith('a',1) istitle() lstrip('a') rstrip() splitlines() isalpha()
isupper() islower() isspace() partition(',') rfind('l') removeprefix('a')""".split()
OPERATORS = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", ">", "<=", ">=", "in", "not in", "and", "or"]


class Expressions:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def one(self, depth):
        if depth <= 0:
            return self.random.choice(self.random.choice([NAMES, NAMES, STRINGS, NUMBERS, PATHS,
                                                          ["true", "false", "none", "[]", "{}", "()"]]))
        kinds = [self.binary] * 6 + [self.filtered] * 5 + [self.method] * 2 + [self.test] * 2
        kinds += [self.index, self.sliced, self.conditional, self.negated, self.display, self.mapping]
        return self.random.choice(kinds)(depth - 1)

    def inner(self, depth):
        return "(" + self.one(depth) + ")"

    def binary(self, depth):
        text = f"{self.one(depth)} {self.random.choice(OPERATORS)} {self.one(depth)}"
        return f"({text})" if self.random.random() < 0.7 else text

    def filtered(self, depth):
        return f"{self.inner(depth)}|{self.random.choice(FILTERS)}"

    def method(self, depth):
        return f"{self.inner(depth)}.{self.random.choice(METHODS)}"

    def test(self, depth):
        return f"({self.one(depth)} is {self.random.choice(['', 'not '])}{self.random.choice(TESTS)})"

    def index(self, depth):
        return f"{self.inner(depth)}[{self.one(depth)}]"

    def sliced(self, depth):
        part = lambda: self.random.choice(["", "", "0", "1", "-1", "2", "-2", "5"])
        return f"({self.inner(depth)}|string)[{part()}:{part()}:{self.random.choice(['', '-1', '2', '-2'])}]"

    def conditional(self, depth):
        return f"({self.one(depth)} if {self.one(depth)} else {self.one(depth)})"

    def negated(self, depth):
        return self.random.choice(["not ", "-"]) + self.inner(depth)

    def display(self, depth):
        return "[" + ", ".join(self.one(depth) for _ in range(self.random.randint(0, 3))) + "]"

    def mapping(self, depth):
        pairs = (f"{self.random.choice(STRINGS)}: {self.one(depth)}" for _ in range(self.random.randint(0, 3)))
        return "{" + ", ".join(pairs) + "}"


def main():
    # Jinja2's indent changes lists of the context, so each case has one of its own.
    warnings.simplefilter("ignore")
    expressions = Expressions(int(sys.argv[1]))
    for _ in range(int(sys.argv[2])):
        entry = case("{{ " + expressions.one(expressions.random.randint(1, 4)) + " }}", copy.deepcopy(CONTEXT))
        expected = entry["expected"] or ""
        foreign = re.search(r"at 0x|<function|<built-in|[0-9]j\)|Markup\(", expected)
        if not foreign:
            print(json.dumps(entry))


if __name__ == "__main__":
    main()
