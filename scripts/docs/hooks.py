"""MkDocs hooks: pages that are made from the program and the sources, and links out of docs/.

reference/cli.md     `winnow COMMAND --help`, for all commands
reference/cpp.md     the public headers
reference/python.md  signatures and docstrings of the Python package
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).parent))
from python_reference import python_page  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])+)\]\(([^()\s]+)\)")
FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")


def on_files(files, config):
    program = ROOT / config["extra"]["program"]
    if not program.is_file():
        raise PluginError(f"{program} is missing: make docs builds it")
    pages = {
        "reference/cli.md": cli_page(program),
        "reference/cpp.md": cpp_page(),
        "reference/python.md": python_page(ROOT / "python/winnow"),
    }
    for folder in folders_of_raw_data(config):
        pages[f"{folder}/index.md"] = listing(Path(config["docs_dir"]) / folder, folder)
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown, page, config, files):
    """Links to folders of raw data go to their listings; those that leave docs/ become paths."""
    lines = []
    fence = ""
    for line in markdown.splitlines():
        mark = FENCE.match(line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        if not fence and not line.startswith("    "):
            line = LINK.sub(lambda m: link(m, page, config), line)
        lines.append(line)
    return "\n".join(lines)


def link(match, page, config):
    text, target = match[1], match[2]
    if re.match(r"[a-z]+:|#", target):
        return match[0]
    name, _, _ = target.partition("#")
    there = os.path.normpath(os.path.join(os.path.dirname(page.file.src_uri), name))
    if not there.startswith(".."):
        is_folder = (Path(config["docs_dir"]) / there).is_dir()
        return f"[{text}]({name.rstrip('/')}/index.md)" if is_folder else match[0]
    path = os.path.relpath(Path(config["docs_dir"]) / there, ROOT)
    return f"`{path}`" if text.strip("`") in path else f"{text} (`{path}`)"


def run(program, *arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PluginError(f"{program} {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def commands_of(text):
    """Names in the paragraph below `Subcommands:` of a help text; examples may follow."""
    _, _, below = text.partition("\nSubcommands:\n")
    below, _, _ = below.partition("\n\n")
    return re.findall(r"^  (\S+)", below, flags=re.MULTILINE)


def cli_page(program):
    parts = [
        "# Command line\n",
        "Made from `winnow COMMAND --help`. Errors are one line on standard error; the exit code is then 1.\n",
    ]

    def add(command):
        text = run(program, *command, "--help")
        parts.append(f"{'#' * min(len(command) + 1, 3)} {' '.join(['winnow', *command])}\n")
        parts.append(f"```text\n{text.strip()}\n```\n")
        for name in commands_of(text):
            add([*command, name])

    add([])
    parts[2] = "## winnow\n"
    return "\n".join(parts)


def cpp_page():
    parts = [
        "# C++ API\n",
        "The public headers. `find_package(winnow)` after `make install`, and link `winnow::winnow`.\n",
    ]
    for path in sorted((ROOT / "include/winnow").glob("*.h")):
        text = path.read_text(encoding="utf-8")
        comment = re.match(r"(?://.*\n)+", text)
        parts.append(f"## winnow/{path.name}\n")
        parts.append(f"```cpp\n{text[comment.end() if comment else 0:].strip()}\n```\n")
    return "\n".join(parts)


def folders_of_raw_data(config):
    results = Path(config["docs_dir"]) / "results"
    return [str(p.relative_to(config["docs_dir"])) for p in results.rglob("*") if p.is_dir()]


def listing(folder, name):
    rows = "\n".join(f"- [{p.name}]({p.name})" for p in sorted(folder.iterdir()) if p.is_file())
    return f"---\nsearch:\n  exclude: true\n---\n\n# Raw data: {name}\n\n{rows}\n"
