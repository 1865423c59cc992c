"""A page of signatures and docstrings, read from the sources of a Python package."""

import ast


def python_page(folder):
    modules = {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in folder.glob("*.py")}
    public = set(exported(modules["__init__"]))
    parts = ["# Python API\n", "Made from the docstrings of `python/winnow`. [How to use it](../python.md).\n"]
    for module in sorted(modules):
        for node in modules[module].body:
            if isinstance(node, ast.ClassDef) and node.name in public:
                parts += class_parts(node)
    return "\n".join(parts)


def exported(module):
    for node in module.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return [name.value for name in node.value.elts]
    return []


def class_parts(node):
    parts = [f"## {node.name}\n", *documentation(ast.get_docstring(node))]
    attributes = attribute_rows(node.body)
    if attributes:
        parts.append("| | | |\n|---|---|---|\n" + "\n".join(attributes) + "\n")
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and (item.name == "__init__" or item.name[0] != "_"):
            parts += function_parts(node.name, item)
    return parts


def attribute_rows(body):
    """A row for each annotated attribute, with the docstring that follows it."""
    rows = []
    for item, following in zip(body, [*body[1:], None]):
        if not isinstance(item, ast.AnnAssign) or item.target.id.startswith("_"):
            continue
        value = f" = {ast.unparse(item.value)}" if item.value else ""
        text = ""
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            text = " ".join(str(following.value.value).split()).replace("|", "\\|")
        kind = ast.unparse(item.annotation).replace("|", "\\|")
        rows.append(f"| `{item.target.id}{value}` | `{kind}` | {text} |")
    return rows


def function_parts(owner, node):
    title = owner if node.name == "__init__" else f"{owner}.{node.name}"
    arguments = ast.unparse(node.args).split(", ")
    arguments = [a for a in arguments if a not in ("self", "cls")]
    inner = ", ".join(arguments)
    if len(inner) > 70:
        inner = "\n    " + ",\n    ".join(split_arguments(inner)) + ",\n"
    result = f" -> {ast.unparse(node.returns)}" if node.returns and node.name != "__init__" else ""
    is_property = any(ast.unparse(d) == "property" for d in node.decorator_list)
    signature = f"{title}{'' if is_property else f'({inner})'}{result}"
    heading = [] if node.name == "__init__" else [f"### {title}\n"]
    return [*heading, f"```python\n{signature}\n```\n", *documentation(ast.get_docstring(node))]


def split_arguments(text):
    """Splits at the commas that no bracket encloses."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def documentation(text):
    """Paragraphs as they are; those laid out by hand (columns of names) keep their layout."""
    if not text:
        return []
    parts = []
    for paragraph in text.split("\n\n"):
        laid_out = any("  " in line.strip() or line.startswith("    ") for line in paragraph.splitlines())
        parts.append(f"```text\n{paragraph}\n```\n" if laid_out else paragraph + "\n")
    return parts
