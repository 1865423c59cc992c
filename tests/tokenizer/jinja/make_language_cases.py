"""Writes language_cases.json: small templates and what Jinja2 renders them to."""
import json
from pathlib import Path

from oracle import case

CONTEXT = {
    "s": "Hello, World",
    "u": "Grüße, 世界 🌍!",
    "e": "",
    "pad": " \t x y \n",
    "n": 7,
    "neg": -7,
    "z": 0,
    "f": 2.5,
    "t": True,
    "no": False,
    "nil": None,
    "xs": [3, 1, 2],
    "empty": [],
    "words": ["b", "A", "c", "a"],
    "d": {"b": 1, "a": "x", "C": None},
    "ms": [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "hi", "n": 2},
        {"role": "assistant", "content": "yo", "n": 1},
    ],
    "deep": {"a": [{"b": "found"}]},
}

# One per line where the line fits; each is an expression put between {{ and }}.
EXPRESSIONS = r"""
1 + 2 * 3 - 4
(1 + 2) * 3
7 // 2, -7 // 2, 7 // -2, 7 % 3, -7 % 3, 7 % -3, 7 / 2, 6 / 2
7.5 // 2, -7.5 // 2, 7.5 % 2, -7.5 % 2, 7 % 2.5, -0.0, 0.0 * -1
2 ** 3 ** 2, 2 ** -1, 2 ** 0.5, -2 ** 2
1e3, 1.5e-7, 1e16, 1e15, 123456789012345680.0, 0.1 + 0.2, 1_000, 0x1F, 0b101, 0o17
1 / 0
1 // 0
1 % 0
0 ** -1
-n, +n, -f, - -n, -t
t + t, t * 3, no - 1
'a' + 'b', 'a' ~ 1 ~ none ~ true ~ 1.0, 'ab' * 3, 3 * 'ab', 'ab' * -1
'a' + 1
1 + 'a'
[1] + [2], (1,) + (2,), [1, 2] * 2
[1] + (2,)
1 == 1.0, 1 == true, 'a' == 'a', [1] == [1.0], {'a': 1} == {'a': 1.0}, (1,) == [1], none == false
1 != 2, 'a' < 'b', 'a' < 'B', [1, 2] < [1, 3], [1] < [1, 0], 1 < 2 < 3, 1 < 2 > 3, 3 > 2 >= 2 <= 2 == 2
1 < 'a'
none < 1
missing < 1
'ell' in s, 'x' not in s, 1 in xs, 9 in xs, 'a' in d, 'zz' in d, 1 in (1, 2), '' in s
1 in 'abc'
1 in 5
1 in missing
true and 'x', '' or 'y', 0 and 1, not 1, not '', not not 'a', 1 or missing.foo
missing or 'd', missing and 1, not missing
'yes' if t else 'no', 'yes' if z else 'no', ('x' if z), 'a' if z else 'b' if z else 'c'
('x' if z) is undefined
missing
missing.x
missing['x']
missing()
missing + 1
missing ~ 'x'
missing == other_missing, missing == none, missing != 1
d.b, d['b'], d.zz, d['zz'], d.C, d.zz is undefined, d.C is none
d.zz.y
deep.a[0].b, deep['a'][0]['b'], deep.a.0.b, deep.a[1], deep.a[-1].b
xs[0], xs[-1], xs[5], xs['0'], xs.0
xs[1:], xs[:-1], xs[::-1], xs[::2], xs[-2:], xs[5:], xs[2:0:-1], xs[::-2], xs[:], xs[1:1]
s[0], s[-1], s[1:4], s[::-1], s[::-3], s[100], s[100:], s[-100:3]
u[2], u[-2], u[7:], u[::-1], u | length
xs[::0]
xs['a':]
5[0], none['a'], 5.x
[1, 'a', none, true, 1.5, [2], (3,), {'k': 'v'}, missing]
(), (1,), (1, 2), [], {}
{'a': 1, 'b': [1, 2], 3: 'c', none: 0}
{'a': 1, 'a': 2}
{[1]: 2}
['it\'s', "say \"hi\"", 'a\nb\t\\', 'é', '\x01', '\u200b', "it's \"x\""]
'\x41\u00e9\U0001F30D\101\q'
'a' 'b' "c"
xs, words, d
s.upper(), s.lower(), s.title(), 'hELLO wORLD'.capitalize(), s.strip('Hd'), pad.strip(), [pad.lstrip()], [pad.rstrip()]
'they\'re bill\'s-friends'.title(), 'they\'re bill\'s-friends (from [here])' | title
'straße' | upper, 'ÀÉ' | lower, 'éa' | capitalize, 'ß'.upper()
s.split(', '), s.split(), ' a  b '.split(), ' a  b '.split(' '), 'a,b,c'.split(',', 1), 'a b c'.split(none, 1), ''.split(), ''.split(',')
s.split('')
'a,b,c'.rsplit(',', 1), ' a b  c '.rsplit(none, 1), 'a b c'.rsplit(maxsplit=1)
'a\nb\r\nc\n'.splitlines(), 'a\n\nb'.splitlines(true)
s.startswith('Hell'), s.endswith('x'), s.startswith(('x', 'H')), s.endswith(('d', 'x'))
s.startswith(1)
s.replace('l', 'L'), s.replace('l', 'L', 1), 'abc'.replace('', '-'), 'aaa'.replace('aa', 'b'), ''.replace('', 'x')
s | replace('o', '0'), s | replace('l', '', 2), 5 | replace(5, 6), 'aé' | replace('', '.')
s.find('o'), s.find('zz'), s.rfind('o'), u.find('界'), s.count('l'), s.count(''), 'aaa'.count('aa')
s.index('zz')
', '.join(words), '-'.join('abc'), ''.join([])
','.join([1])
'a=b=c'.partition('='), 'a=b=c'.rpartition('='), 'abc'.partition('x'), 'abc'.rpartition('x')
'prefix-x'.removeprefix('prefix-'), 'x.py'.removesuffix('.py'), 'abc'.removeprefix('x')
'12'.isdigit(), ''.isdigit(), 'ab'.isalpha(), 'a1'.isalnum(), ' \t'.isspace(), 'AB'.isupper(), 'a1'.islower(), '1'.islower(), 'Ab'.isupper()
d.get('b'), d.get('zz'), d.get('zz', 5), d.keys() | list, d.values() | list, d.items() | list
d.items(), d.keys(), d.values()
d.pop('a')
xs.append(1)
d.update({'x': 1})
xs.index(2), xs.count(1), (1, 2, 1).count(1)
xs.index(99)
s.nothing()
s.nothing
xs | length, s | length, d | length, empty | count, missing | length, u | length
5 | length
none | length
xs | first, xs | last, empty | first, s | first, s | last, d | first, missing | first
xs | reverse | list, s | reverse, u | reverse
xs | sort, words | sort, words | sort(case_sensitive=true), words | sort(reverse=true), xs | sort(true)
ms | sort(attribute='role') | map(attribute='role') | list
ms[1:] | sort(attribute='n') | map(attribute='content') | join(',')
[1, 'a'] | sort
d | dictsort, {'b': 1, 'A': 2} | dictsort(true), {'x': 2, 'y': 1} | dictsort(by='value'), {'x': 2, 'y': 1} | dictsort(false, 'value', true)
[1, 2, 1, 'a', 'A'] | unique | list, words | unique(true) | list
[3, 1, 2] | min, [3, 1, 2] | max, words | min, words | max(case_sensitive=true), empty | max
xs | sum, [1.5, 2] | sum, xs | sum(start=10), [{'v': 1}, {'v': 2}] | sum(attribute='v')
xs | join, xs | join(', '), words | join('-'), ms | join(',', attribute='role'), s | join('.')
xs | map('string') | join('+'), words | map('upper') | list, ['1', 'x'] | map('int', 7) | list
ms | map(attribute='n') | list, ms | map(attribute='n', default=0) | list, [deep] | map(attribute='a.0.b') | list
xs | select('odd') | list, xs | reject('odd') | list, [0, 1, '', 'a'] | select | list, [0, 1] | reject | list
xs | select('gt', 1) | list, xs | select('in', [1, 2]) | list, xs | select('divisibleby', 3) | list
ms | selectattr('n') | map(attribute='role') | list, ms | selectattr('role', 'equalto', 'user') | list | length
ms | rejectattr('role', '==', 'system') | map(attribute='role') | list, ms | selectattr('n', 'defined') | list | length
(empty | select | list) or 'none', 'lazy is true' if empty | select
xs | select('odd') | length
xs | map('nothing') | list
none | default('x'), missing | default('x'), missing | d, '' | default('x'), '' | default('x', true), none | d('y', boolean=true)
'5' | int, '5.7' | int, 'x' | int, 'x' | int(9), 5.9 | int, -5.9 | int, none | int, true | int, ' 12 ' | int, '1_000' | int, '0x1f' | int(0, 16), 'ff' | int(base=16), '' | int, [] | int
missing | int
'5' | float, 'x' | float, 'x' | float(1.5), '1e3' | float, 5 | float, 'inf' | float, '-inf' | float, none | float
2.5 | round, 3.5 | round, 2.675 | round(2), 42 | round, 1234.567 | round(-2), 1.2 | round(0, 'ceil'), -1.2 | round(method='floor'), 1.25 | round(1), 15 | round(-1), 25 | round(-1)
-5 | abs, -2.5 | abs, true | abs
'a' | abs
pad | trim, 'xxaxx' | trim('x'), missing | trim, 5 | trim
5 | string, none | string, missing | string, [1] | string
s | upper, s | lower, 'ab cd-ef' | title, 5 | upper, missing | upper
'a\nb\n\nc' | indent, 'a\nb' | indent(2), 'a\nb\n\nc' | indent(2, true), 'a\n\nb' | indent(2, blank=true), 'a\nb' | indent('> ', true), 'a\nb\n' | indent
('<a href="x">&\'' | escape) ~ ('<' | e) ~ ('<' | safe)
d | tojson, xs | tojson, u | tojson, none | tojson, true | tojson, 1.0 | tojson, 'a"b\\c\n\t\x01\x7f/' | tojson, {'a': {'b': []}, 'c': {}} | tojson
d | tojson(indent=2), [1, [2, {'a': []}]] | tojson(indent=4), [] | tojson(indent=2), [1] | tojson(indent=0), {'a': 1} | tojson(indent='--')
u | tojson(ensure_ascii=true), {'b': 1, 'a': 2} | tojson(sort_keys=true), [1, 2] | tojson(separators=(',', ':')), {'a': 1} | tojson(separators=[' , ', ' : '], indent=1)
{1: 2, none: 3, true: 4, 1.5: 5} | tojson, (1, 2) | tojson, 'inf' | float | tojson
missing | tojson
range | tojson
d | items | list, missing | items | list, {'x': 1} | attr('get') is callable, d | attr('zz')
s is defined, missing is defined, missing is undefined, missing is not defined, nil is none, nil is not none, d.C is defined
s is string, n is string, n is number, f is number, t is number, n is integer, t is integer, f is integer, f is float, t is boolean, n is boolean
d is mapping, xs is mapping, xs is sequence, s is sequence, d is sequence, n is sequence, missing is sequence, d.keys() is sequence
xs is iterable, s is iterable, d is iterable, n is iterable, missing is iterable, range is callable, n is callable
t is true, no is false, 1 is true, n is odd, n is even, neg is odd, 4 is divisibleby 2, 4 is divisibleby(3), 'a' is eq 'a', 1 is ne 2
1 is in [1, 2], 'x' is in s, 3 is gt 2, 3 is lessthan 2, 1 is sameas 1, 1 is sameas true, 'a' is lower, 'A' is upper, s is filter, 'upper' is filter, 'odd' is test
n is odd and t, not n is odd, n is not odd or t, n is odd if t else 0
'a' is odd
n is nothing
n | nothing
range(3) | list, range(1, 4) | list, range(0, 10, 3) | list, range(5, 0, -2) | list, range(0) | list, range(3)[1], range(3) | length
range(200000) | length
range(1, 2, 0)
dict(a=1, b=2), dict({'x': 1}, y=2), dict([('k', 'v')])
namespace(a=1).a, namespace({'b': 2}).b, namespace().zz is undefined
raise_exception('no ' ~ n)
strftime_now('%d %b %Y'), strftime_now('%Y-%m-%d %H:%M:%S'), strftime_now('')
n | string | length, -n | abs, (n + 1) | string ~ 'x', 1 + 2 | string | length
[x for x in xs]
lambda: 1
s.__class__
xs.__len__
1 if
1 +
(1
[1, 2
{'a' 1}
'unclosed
1 2
a.b.
f(a=1, 2)
f(**d, 1)
not
1 is
x is is
x | 
@
9223372036854775807
true, True, false, False, none, None
'%s' | length
'a' if t, 'b'
s | trim | upper | lower | length
(s | trim).upper(), s | trim.x
'a' ~ 1 + 2, 'a' ~ 2 * 3
1 ~ 2 == '12', 1 + 1 ~ 3
- 1 | abs, -1 ** 2
xs | first + 1, not xs | first
'abc'[1].upper(), 'a b'.split()[0].upper().lower()
[[1, 2], [3]] | map('first') | list, [[1, 2], [3]] | map('join', '-') | list, [[2, 1]] | map('sort') | list
words | map('upper') | select('in', ['A', 'B']) | join, words | map('replace', 'a', 'z') | join
""".strip("\n")

STATEMENTS = [
    "{% if t %}a{% elif n %}b{% else %}c{% endif %}",
    "{% if z %}a{% elif n %}b{% else %}c{% endif %}",
    "{% if z %}a{% elif nil %}b{% else %}c{% endif %}",
    "{% if missing %}a{% endif %}|",
    "{% if t",
    "{% if t %}",
    "{% endif %}",
    "{% if t %}{% endfor %}",
    "{% for x in xs %}{{ x }}{% endfor %}",
    "{% for x in xs %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}"
    "{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }};{% endfor %}",
    "{% for x in xs %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}",
    "{% for x in xs %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }};{% endfor %}",
    "{% for x in xs %}{{ loop.cycle('a', 'b') }}{{ loop.depth }}{% endfor %}",
    "{% for x in xs %}{% for y in xs %}{{ loop.depth }}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}",
    "{% for x in empty %}a{% else %}none{% endfor %}",
    "{% for x in missing %}a{% else %}none{% endfor %}",
    "{% for x in nil %}a{% endfor %}",
    "{% for x in 5 %}a{% endfor %}",
    "{% for c in u %}{{ c }}.{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d | items %}{{ k }}={{ v }};{% endfor %}",
    "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{{ a }}{% endfor %}",
    "{% for a, b in [1] %}{{ a }}{% endfor %}",
    "{% for x in xs if x > 1 %}{{ x }}{{ loop.index }}{{ loop.length }};{% else %}none{% endfor %}",
    "{% for x in xs if x > 9 %}{{ x }}{% else %}none{% endfor %}",
    "{% for m in ms if m.n is defined %}{{ m.role }}{% endfor %}",
    "{% for x in xs %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in xs %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}!",
    "{% for x in xs %}{% for y in xs %}{% if y == 1 %}{% break %}{% endif %}{{ y }}{% endfor %}{{ x }}{% endfor %}",
    "{% break %}",
    "{% for x in 1, 2 %}{{ x }}{% endfor %}",
    "{% for x in [1, 2] + [3] %}{{ x }}{% endfor %}",
    "{% for x in xs %}{% set y = x %}{% endfor %}{{ y is defined }}",
    "{% set y = 0 %}{% for x in xs %}{% set y = y + x %}{{ y }}{% endfor %}{{ y }}",
    "{% for x in xs %}{{ seen is defined }}{% set seen = 1 %}{% endfor %}",
    "{% if t %}{% set y = 1 %}{% endif %}{{ y }}",
    "{% for x in xs %}{% endfor %}{{ x is defined }}{{ loop is defined }}",
    "{% set ns = namespace(n=0, s='') %}{% for x in xs %}{% set ns.n = ns.n + x %}"
    "{% set ns.s = ns.s ~ x %}{% endfor %}{{ ns.n }} {{ ns.s }}",
    "{% set ns = namespace() %}{% set ns.x = 1 %}{{ ns.x }}{{ ns.y is defined }}",
    "{% set d.x = 1 %}",
    "{% set nowhere.x = 1 %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set a, b = [1, 2, 3] %}",
    "{% set a = 1, 2 %}{{ a }}",
    "{% set a = b = 1 %}",
    "{% set true = 1 %}",
    "{% set x %}a{{ n }}b{% endset %}[{{ x }}]",
    "{% set x | upper | trim %} a{{ n }}b {% endset %}[{{ x }}]",
    "{% set x %}{% set inner = 1 %}{% endset %}{{ inner is defined }}",
    "{% filter upper %}a{{ s }}{% endfilter %}",
    "{% filter replace('a', 'b') | upper %}aab{% endfilter %}",
    "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}",
    "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}",
    "{% macro m(a, b=2) %}{{ a }}-{{ b }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=5, a=4) }}{{ m() }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(x=2) }}",
    "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}",
    "{% macro m(a=1, b) %}{% endmacro %}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}",
    "{% macro m() %}{{ n }}{{ late }}{% endmacro %}{% set late = 1 %}{{ m() }}",
    "{% macro m() %}{% set n = 99 %}{{ n }}{% endmacro %}{{ m() }}{{ n }}",
    "{% macro fact(k) %}{% if k > 1 %}{{ k }}*{{ fact(k - 1) }}{% else %}1{% endif %}{% endmacro %}{{ fact(4) }}",
    "{% macro forever() %}{{ forever() }}{% endmacro %}{{ forever() }}",
    "{% macro m() %}x{% endmacro %}{{ m().upper() }}{{ m() | length }}{{ m() ~ 'y' }}",
    "{% macro m(x) %}[{{ caller(x) }}]{% endmacro %}{% call(v) m(3) %}<{{ v }}>{% endcall %}",
    "{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}body{{ n }}{% endcall %}",
    "{% macro m() %}x{% endmacro %}{% for i in xs %}{{ m() }}{% endfor %}",
    "{% for i in xs %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% macro a() %}A{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}",
    "{% generation %}{{ s }}{% endgeneration %}!",
    "{% raw %}{{ not }} {% this %}{% endraw %}",
    "{%- raw -%}  {{ x }}  {%- endraw -%} y",
    "{% raw %}{{ x",
    "{# comment #}a{#- x -#} b",
    "{# unclosed",
    "{# {{ x }} {% if %} #}ok",
    "a\n{% if t %}\nb\n{% endif %}\nc\n",
    "a\n  {% if t %}\n  b\n  {% endif %}\nc\n\n",
    "a  {% if t %}  b  {% endif %}  c",
    "a  {%- if t -%}  b  {%- endif -%}  c",
    "a\n  {%+ if t %}\nb{% endif +%}\n c",
    "a\n {{- n -}} \nb",
    "a\n {{ n }}\n b",
    "a\n {# c #}\nb",
    "a\n {#- c -#}\nb",
    "a {#+ c +#}\nb",
    "{% if t -%}\n\n  x{% endif %}",
    "\n{% set x = 1 %}\n\n{{ x }}\n",
    "  {% set x = 1 %}{{ x }}",
    "x  {% set x = 1 %}{{ x }}",
    "a\r\nb\rc\n{% if t %}\r\nd{% endif %}",
    "{{ '\r\n' | length }}",
    "a{{ n }}\n",
    "a\n\n",
    "\n",
    "",
    "{",
    "{ {x} } % # }} %}",
    "{{ '}}' }}{{ \"%}\" }}",
    "{{ {'a': {'b': 1}}['a']['b'] }}",
    "{{ {'a': {}}}}",
    "{{ n",
    "{{ n }",
    "{% nothing %}",
    "{% extends 'x' %}",
    "{% include 'x' %}",
    "{% import 'x' as y %}",
    "{% do xs.append(1) %}",
    "{%if t%}x{%endif%}{{n}}",
    "{{- 1 }}{{+1 }}{{ -1 -}}",
    "{{ caller }}{{ loop }}{{ varargs }}",
    "{% for x in xs %}{{ loop }}{% endfor %}",
    "{% set x = namespace(a=1) %}{{ x }}",
    "{% if not (z or nil) and t %}y{% endif %}",
    "{% if ms[0]['role'] == 'system' %}{% set rest = ms[1:] %}{% else %}{% set rest = ms %}{% endif %}"
    "{% for m in rest %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}"
    "{% endif %}{{ m.content }}{% endfor %}",
]


def main():
    cases = [case("{{ " + e + " }}", CONTEXT) for e in EXPRESSIONS.split("\n")]
    cases += [case(template, CONTEXT) for template in STATEMENTS]
    for entry in cases:
        del entry["context"]
        entry.pop("error", None)
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in cases)
    text = '{"context": %s,\n"cases": [\n%s\n]}\n' % (json.dumps(CONTEXT, ensure_ascii=False), lines)
    (Path(__file__).parent / "language_cases.json").write_text(text)


if __name__ == "__main__":
    main()
