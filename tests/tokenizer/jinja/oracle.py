"""What Jinja2 itself, set up as transformers sets it up, makes of a template.

Used to write the expected output of the cases beside this file; the tests read only that output.
"""
import json
from datetime import datetime

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime(2023, 11, 14, 22, 13, 20)  # the tests' clock


class Generation(jinja2.ext.Extension):
    """{% generation %} marks what the assistant says; rendering passes it through."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_pass"), [], [], body).set_lineno(line)

    def _pass(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: NOW.strftime(format)
    return env


def case(template, context=None, env=environment()):
    """The case as the tests read it; `expected` is null where Jinja2 raises an error."""
    result = {"template": template, "context": context or {}}
    try:
        result["expected"] = env.from_string(template).render(**(context or {}))
    except Exception as error:  # any error: type errors inside expressions included
        result["expected"] = None
        result["error"] = f"{type(error).__name__}: {error}"
    return result
