"""Search prose for words that the project does not use; `make check` runs it.

    python tests/words.py src docs README.md

Prose is Markdown outside code blocks, comments of YAML files, and comments and strings of Python.
"""

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

INSTEAD = {
    r"anew": "again, from scratch, re-run, re-drawn",
    r"anybody|somebody|nobody|whoever|whatever": "anyone who, someone, no one; or name the thing",
    r"as of `": "the actual meaning, or a link",
    r"given up|gives? way to": "skipped, dropped, overridden by",
    r"goes by|hangs on": "uses, depends on",
    r"graphics cards?": "GPU",
    r"handed": "passed",
    r"is told|tells? of": "reports, logs, warns, prints",
    r"likewise|the same of": "the actual meaning",
    r"of one's own": "your, custom, user-defined",
    r"once more": "again",
    r"passed over": "skipped",
    r"side by side": "in parallel, next to each other",
    r"(?<!not )so many|that many": "the count itself",
    r"what is left|is lost": "remaining accuracy, misclassified",
}
"""Pattern -> what to write instead."""

PATTERN = re.compile(r"\b(?:" + "|".join(INSTEAD) + r")(?:\b|(?<=`))", re.IGNORECASE)


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of prose of a file, numbered."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        text = re.sub(
            r"```.*?```", lambda block: "\n" * block[0].count("\n"), text, flags=re.DOTALL
        )
        yield from enumerate(text.splitlines(), start=1)
    elif path.suffix == ".yaml":
        for number, line in enumerate(text.splitlines(), start=1):
            yield number, line.partition("#")[2]
    else:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in (tokenize.STRING, tokenize.COMMENT):
                yield from enumerate(token.string.splitlines(), start=token.start[0])


def main(roots: list[str]) -> None:
    """Print each use of such a word, and exit with 1 if there is any."""
    files = [
        path
        for root in map(Path, roots)
        for path in ([root] if root.is_file() else sorted(root.rglob("*")))
        if path.suffix in (".md", ".py", ".yaml") and path.resolve() != Path(__file__).resolve()
    ]
    found = [
        f"{path}:{number}: `{word[0]}`: {line.strip()}"
        for path in files
        for number, line in prose(path)
        for word in PATTERN.finditer(line)
    ]
    sys.stdout.write("".join(f"{line}\n" for line in found))
    sys.exit(bool(found))


if __name__ == "__main__":
    main(sys.argv[1:])
