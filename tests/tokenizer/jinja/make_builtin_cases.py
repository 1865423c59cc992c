"""Writes builtin_cases.json: Jinja's built-ins that chat templates seldom use, and what Jinja2 makes of
them. The context is that of language_cases.json."""
import json
from pathlib import Path

from make_language_cases import CONTEXT
from oracle import case

# One per line; each is an expression put between {{ and }}.
EXPRESSIONS = r"""
'%s=%d' % ('a', 2), '%s' % 'x', '%s' % [1, 2], '%s %s' % (1, none), '%r' % 'a\'b', '%a' % 'é', '%%' % (), '5%% of %s' % n
'%5d|%-5d|%05d|%+d|% d|%.3d|%x|%X|%o|%#x|%#o|%c|%c' % (1, 2, 3, 4, 5, 6, 255, 255, 8, 255, 8, 65, 'B')
'%f|%.2f|%10.3f|%-10.1f|%+e|%E|%g|%G|%.0f|%#.0f' % (1.5, 2.345, 3.14159, 2.5, 12345.678, 0.00012, 1e10, 1e-10, 2.5, 2.5)
'%(a)s-%(b)03d' % {'a': 'x', 'b': 7}, '%s' % {'a': 1}, 'plain' % {'a': 1}, '%*d|%-*d|%.*f' % (5, 1, 5, 2, 2, 3.14159)
'%5s|%-5s|%.2s|%5.1s' % ('ab', 'ab', 'abcd', 'xyz'), '%d' % 3.9, '%d' % true, '%i %u' % (1, 2), '%s' % missing
'%d' % 'x'
'%s %s' % 'a'
'%s' % (1, 2)
'%(a)s' % 5
'%(b)s' % {'a': 1}
'%y' % 1
'%' % 1
'%x' % 1.5
'%f' % ('inf' | float), '%5.1f' % ('-inf' | float), '%g' % ('nan' | float), '%05.1f' % -1.5, '%+.3g' % 1234567.0
'%s and %s' | format('a', 2), '%.1f' | format(2.25), '%(x)s' | format(x=1), 5 | format, '%s' | format([1])
'%s' | format('a', x=1)
'{}: {}'.format('a', 1), '{1}{0}'.format('a', 'b'), '{x}{y}'.format(x=1, y='z'), '{{}}'.format(), '{0[1]}{0[0]}'.format([1, 2])
'{0.role}'.format(ms[0]), '{m[content]}'.format(m=ms[1]), '{0[a]}'.format({'a': 5}), '{a.x}'.format(a=1) is defined
'{:5}|{:<5}|{:>5}|{:^5}|{:*^7}|{:05}|{:+}|{: }'.format('a', 'b', 'c', 'd', 'e', 42, 3, 4)
'{:d}|{:x}|{:X}|{:#x}|{:b}|{:#b}|{:o}|{:c}|{:,}|{:_}|{:n}'.format(42, 255, 255, 255, 5, 5, 8, 65, 1234567, 1234567, 5)
'{:.2f}|{:10.3f}|{:<10.1f}|{:e}|{:.1E}|{:g}|{:%}|{:.1%}|{:,.2f}|{:+.1f}'.format(1.005, 3.14159, 2.5, 12345.6, 0.00012, 1e20, 0.5, 0.123, 1234567.891, 2.0)
'{:010,}|{:08.2f}|{:=+8}|{:<08}|{:^+9.2f}|{:0=6}|{:*>+8}'.format(1234, -3.14159, 5, 7, 2.5, -42, 9)
'{!s}|{!r}|{!a}|{!r:>6}'.format('a', 'b', 'é', 'c'), '{:>{w}}|{:{f}^{w}}'.format('a', 'b', w=4, f='-'), '{:.3}|{:.{p}}'.format('abcdef', 'uvw', p=1)
'{}'.format(none), '{}'.format(true), '{:d}'.format(true), '{:>6}'.format(true), '{}'.format([1, 'a']), '{}'.format(1.0), '{:.3}'.format(1234.5), '{:.6}'.format(2.0), '{}'.format(missing)
'{:é^5}'.format('x'), '{:5}'.format('世界'), '{0}{0}{1}'.format(1, 2), '{:s}'.format('x'), '{:.0%}'.format(0.5)
'{'.format()
'}'.format()
'{} {}'.format(1)
'{0} {}'.format(1, 2)
'{x}'.format()
'{:d}'.format('a')
'{:q}'.format(1)
'{:>5}'.format([1])
'{:.2d}'.format(1)
'{!z}'.format(1)
'{a}-{b}'.format_map({'a': 1, 'b': 2})
s.center(20, '*'), 'ab'.center(5), 'abc'.center(6, '.'), 'a'.ljust(4, '-'), 'a'.rjust(4), 'abc'.center(2), 'é'.rjust(3, '·')
'5'.zfill(3), '-5'.zfill(4), '+1'.zfill(4), 'abc'.zfill(2), ''.zfill(2), 'a\tb'.expandtabs(), 'a\tbc\td'.expandtabs(4), '\t'.expandtabs(0), 'a\n\tb'.expandtabs(2)
'aBc'.swapcase(), 'ÀÉ'.casefold(), 'Hello World'.istitle(), 'hello'.istitle(), 'abc'.isascii(), 'é'.isascii(), '12'.isdecimal(), '½'.isnumeric(), '½'.isdecimal()
s.find('o', 5), s.find('o', 5, 7), s.rfind('l', 0, 4), s.count('l', 4), s.count('', 3, 5), s.startswith('W', 7), s.endswith('lo', 0, 5), s.index('o', -5), u.find('界', 3), s.find('', 99), s.find('H', 1)
(2.0).is_integer(), (2.5).is_integer(), xs.copy()
'a'.center(5, 'xy')
s | center(20), 'ab' | center(5) | string | length, 5 | center(3)
[1, 2, 3] | batch(2) | list, [1, 2, 3] | batch(2, 'x') | list, [] | batch(3) | list, 'abc' | batch(2) | list, [1, 2] | batch(5, 0) | list
[1, 2, 3, 4, 5] | slice(2) | list, [1, 2, 3, 4, 5] | slice(3, 'x') | list, [1] | slice(3) | list, [] | slice(2, 0) | list
[1] | slice(0) | list
ms | groupby('role'), ms | groupby('role') | map(attribute='grouper') | list, ms | groupby('role') | map(attribute='list') | map('length') | list
[{'c': 'b'}, {'c': 'A'}, {'c': 'a'}, {'c': 'B'}] | groupby('c') | map('first') | list, [{'c': 'b'}, {'c': 'A'}, {'c': 'a'}] | groupby('c', case_sensitive=true) | map(attribute='0') | list
[{'x': 1}, {'y': 2}] | groupby('x', default=0), [[1, 'a'], [0, 'b'], [1, 'c']] | groupby(0)
[{'x': 1}, {'y': 2}] | groupby('x')
(ms | groupby('role'))[0].grouper, (ms | groupby('role') | first).list | length, (ms | groupby('role') | first) | length, (ms | groupby('role'))[0][0]
'a b c d e f g h' | truncate(9), 'a b c d e f g h' | truncate(9, true), 'a b c d e f g h' | truncate(9, false, '…'), 'a b c d e f g h' | truncate(9, leeway=0), 'short' | truncate(3), 'long enough word' | truncate(5, true, '', 0), 'Grüße, 世界 🌍!' | truncate(9, leeway=0)
'abc' | truncate(2, leeway=0)
5 | truncate
[1, 2] | truncate(5), {} | truncate(5), missing | truncate
[1, 2, 3] | truncate(3, leeway=0, end='')
'x' | filesizeformat
none | filesizeformat
'plain' % [1], 'plain' % {}
'plain' % 'x'
'plain' % none
s | wordcount, 'a-b c_d 1' | wordcount, '' | wordcount, u | wordcount, 'don\'t' | wordcount
1 | filesizeformat, 0 | filesizeformat, 999 | filesizeformat, 1000 | filesizeformat, 1500000 | filesizeformat, 1024 | filesizeformat(true), 1048576 | filesizeformat(binary=true), '12345' | filesizeformat, 1e30 | filesizeformat, 5.7 | filesizeformat
{'b': 1, 'a': [3, {'d': 1, 'c': 2}]} | pprint, 'x' | pprint, [1, 'a', none] | pprint, 1.5 | pprint
'a b/c?d=é&' | urlencode, {'a b': 'c/d', 'e': 1} | urlencode, [('x', 'y z')] | urlencode, 5 | urlencode
{'class': 'a b', 'id': none, 'x': '<&"'} | xmlattr, {} | xmlattr, {'a': 1} | xmlattr(false)
{'a b': 1} | xmlattr
'<p>Hello <b>World</b> &amp; <!-- x --> \n more&lt;&#39;&#x41;</p>' | striptags, 'a < b' | striptags, 5 | striptags
'<a>' | forceescape
'\N{BULLET} \N{LATIN SMALL LETTER E WITH ACUTE} \N{EM DASH}\N{GRINNING FACE}\N{HANGUL SYLLABLE GA}', '\N{bullet}'
'\N{NO SUCH NAME}'
'\N'
joiner is callable, joiner()(), cycler('a', 'b').next(), cycler(1).current
cycler()
range(3) | random in [0, 1, 2], [] | random is undefined, 'x' | random
[1, 2] | map('nope') | list if false else 'ok'
'a' is filter, 'upper' is filter, 'even' is test, 'nope' is test, 'groupby' is filter
1 | nope
1 is nope
1 | nope if false else 'ok'
(1 is nope) if no else 'ok'
"""

STATEMENTS = [
    "{% for x in [1, 1, 2, 2, 1] %}{% if loop.changed(x) %}{{ x }}{% endif %}{% endfor %}",
    "{% for x in [[1], [1], [2]] %}{{ loop.changed(x, 'a') }}{% endfor %}",
    "{% for x in xs %}{{ loop.changed() }}{% endfor %}",
    "{% for x in xs %}{% for y in xs %}{{ loop.changed(x) }}{% endfor %}{% endfor %}",
    "{% for x in [1, 2] %}{{ loop.cycle('odd', 'even') }}{% endfor %}",
    "{% for x in [1, [2, [3, 4]], 5] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}{% endif %}{% endfor %}",
    "{% for x in [[1, 2], [3]] recursive %}{{ loop.depth }}{{ loop.depth0 }}{{ loop.index }}/{{ loop.length }}"
    "{% if x is iterable %}<{{ loop(x) }}>{% else %}{{ x }}{% endif %};{% endfor %}",
    "{% for x in [{'n': 'a', 'c': [{'n': 'b', 'c': []}]}] recursive %}{{ x.n }}{{ loop(x.c) }}{% else %}-{% endfor %}",
    "{% for x in [1, [0, 2]] if x recursive %}{% if x is iterable %}{{ loop(x) }}{% else %}{{ x }}{% endif %}{% endfor %}",
    "{% set k = 1 %}{% for x in [1, [2]] recursive %}{% set k = 2 %}{% if x is iterable %}{{ loop(x) }}{% endif %}{{ k }}{% endfor %}{{ k }}",
    "{% for x in [1] %}{{ loop([2]) }}{% endfor %}",
    "{% for x in [1] recursive %}{{ loop() }}{% endfor %}",
    "{% for x in [[1]] recursive %}{{ loop.changed(x) }}{% if x is iterable %}{{ loop(x) }}{% endif %}{% endfor %}",
    "{% set j = joiner() %}{% for x in xs %}{{ j() }}{{ x }}{% endfor %}",
    "{% set j = joiner(' | ') %}{{ j() }}a{{ j() }}b{{ j() }}c",
    "{% set c = cycler('a', 'b', 'c') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.next() }}{{ c.reset() }}{{ c.current }}",
    "{% set c = cycler(1, 2) %}{% for x in xs %}{{ c.next() }}{% endfor %}{{ c.nope is defined }}",
    "{% for role, list in ms | groupby('role') %}{{ role }}:{{ list | length }};{% endfor %}",
    "{% for g in ms | groupby('role') %}{{ g.grouper }}{{ g.list | map(attribute='content') | join }}{{ g[1] | length }}{% endfor %}",
    "{% for row in range(7) | batch(3, '-') %}{{ row | join(',') }};{% endfor %}",
    "{% for column in range(7) | slice(3) %}{{ column | join(',') }};{% endfor %}",
    "{% if no %}{{ 1 | nope }}{{ 1 is nope }}{% endif %}ok",
    "{% if no %}{% set x = 1 | nope(2) %}{% elif t %}yes{% endif %}",
    "{% if t %}{{ 1 | nope }}{% endif %}",
    "{% if 'nope' is filter %}{{ s | nope }}{% else %}{{ s }}{% endif %}",
    "{% block a %}x{{ n }}{% endblock %}{% block b scoped %}y{% endblock b %}",
    "{% if no %}{% include 'x' %}{% import 'x' as y %}{% from 'x' import y with context %}{% endif %}ok",
    "{% from 'x' import y %}",
    "{% autoescape false %}{{ '<' }}{% endautoescape %}",
    "{% for x in [] %}{% else %}{% for y in [1, 2] %}{% if y == 2 %}{% break %}{% endif %}{{ y }}{% endfor %}{% endfor %}",
]


def main():
    cases = [case("{{ " + e + " }}", CONTEXT) for e in EXPRESSIONS.strip("\n").split("\n")]
    cases += [case(template, CONTEXT) for template in STATEMENTS]
    for entry in cases:
        del entry["context"]
        print(entry.pop("error", None) or "", entry["template"][:70]) if entry["expected"] is None else None
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in cases)
    path = Path(__file__).parent / "builtin_cases.json"
    path.write_text('{"cases": [\n%s\n]}\n' % lines, encoding="utf-8")


if __name__ == "__main__":
    main()
