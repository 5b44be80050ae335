"""Printed tables, read back."""


def rows_of(printed: str) -> list[dict[str, str]]:
    """The rows of a printed Markdown table."""
    lines = [line for line in printed.splitlines() if line.startswith("|")]
    header, _, *rows = [[c.strip() for c in line.strip("|").split("|")] for line in lines]
    return [dict(zip(header, row, strict=True)) for row in rows]
