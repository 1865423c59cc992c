"""What reports read from commands, and the tables that they write."""
import json


def objects(text: str) -> list[dict]:
    """The JSON objects in a text, one behind the other."""
    found, at, decoder = [], text.find("{"), json.JSONDecoder()
    while at >= 0:
        value, end = decoder.raw_decode(text, at)
        found.append(value)
        at = text.find("{", end)
    return found


def table(head: list[str], rows: list[list]) -> str:
    def line(cells):
        return "| " + " | ".join(str(cell) for cell in cells) + " |"
    return "\n".join([line(head), "|" + "---|" * len(head), *map(line, rows)]) + "\n"


def number(value: float | None, digits: int = 0) -> str:
    return "" if value is None else f"{value:,.{digits}f}"
