"""Results as Markdown, ratios first."""

from collections.abc import Iterator
from typing import Any

NAMES = {
    "cora": "Cora",
    "amazon_computer": "Amazon",
    "coauthor": "Coauthor",
    "planetoid_citeseer": "Planetoid's Citeseer",
}
TARGETS = {
    "epoch, Cora, torch": 2.0,
    "epoch, Cora, compiled": 3.0,
    "epoch, Amazon, torch": 8.0,
    "epoch, Amazon, compiled": 14.0,
}
"""Required speed-up over the program of the comparison."""

LIMITS = {
    "memory, Cora": 60.0,
    "memory, Amazon": 400.0,
    "memory, Amazon, whole graph": 800.0,
    "white-box SPEIT, 3 x 64, one step": 10.0,
    "attack=auto, Beltrami 4 x 128, Cora": 300.0,
}
"""Upper limits, in MB or seconds."""


def ratios(results: dict[str, Any]) -> dict[str, float]:
    """Return the speed-up of each program over the one that it is compared with."""
    return dict(_ratios(results))


def _ratios(results: dict[str, Any]) -> Iterator[tuple[str, float]]:
    for dataset, programs in results.get("epoch", {}).items():
        yardstick = programs["straightforward"]["median_ms"]
        for backend in ("torch", "compiled"):
            yield (
                f"epoch, {NAMES[dataset]}, {backend}",
                yardstick / programs[backend]["median_ms"],
            )
    for case, subject in (("words", "epoch"), ("guard", "epoch of GNNGuard")):
        for dataset, features in results.get(case, {}).items():
            yield (
                f"{subject}, {NAMES[dataset]}, features as prepared / plain",
                features["plain"]["median_ms"] / features["prepared"]["median_ms"],
            )
    if "rows" in results:
        apart, together = (results["rows"][name]["median_ms"] for name in ("apart", "together"))
        yield "SPEIT, Coauthor, rows that stay apart / put together", together / apart


def as_markdown(results: dict[str, Any]) -> str:
    """Render all tables, ratios first."""
    on = results["machine"]
    lines = [
        f"# Speed on {on['processor']}",
        "",
        f"One thread of {on['cores']} cores, torch {on['torch']}, Python {on['python']}, "
        f"allocator: {on['allocator']}. Written by `make bench`.",
        "",
        "| ratio of medians | times faster | target | met |",
        "|---|---|---|---|",
    ]
    for name, ratio in _ratios(results):
        target = TARGETS.get(name)
        goal = f"{target:g}x | {'yes' if ratio >= target else 'NO'}" if target else "- | -"
        lines.append(f"| {name} | {ratio:.2f}x | {goal} |")
    lines += ["", "| figure | value | limit | met |", "|---|---|---|---|"]
    for name, value, unit in _figures(results):
        key = next((key for key in LIMITS if name == key or name.startswith(f"{key}:")), None)
        limit = LIMITS[key] if key else None
        goal = f"{limit:g} {unit} | {'yes' if value <= limit else 'NO'}" if limit else "- | -"
        lines.append(f"| {name} | {value:.3g} {unit} | {goal} |".replace("  ", " "))
    return "\n".join(lines + _epochs(results)) + "\n"


def _figures(results: dict[str, Any]) -> Iterator[tuple[str, float, str]]:
    for name, growth in results.get("memory", {}).items():
        for dataset, megabytes in growth.items():
            yield f"memory, {dataset}: {name}", megabytes, "MB"
    for name, times in results.get("white_box", {}).items():
        model, _, backend = name.rpartition(", ")
        yield f"white-box SPEIT, {model}: {backend}", times["median_ms"] / 1e3, "s"
    for name, times in results.get("auto", {}).items():
        reached = f"accuracy {100 * times['accuracy']:.1f} %"
        yield (
            f"attack={name}, Beltrami 4 x 128, Cora: {reached}",
            times["median_ms"] / 1e3,
            "s",
        )
    for dataset, programs in results.get("epoch", {}).items():
        for backend in ("torch", "compiled"):
            share = programs[backend]["median_ms"] / programs["floor"]["median_ms"]
            yield f"epoch / floor, {NAMES[dataset]}: {backend}", share, ""


def _epochs(results: dict[str, Any]) -> list[str]:
    if "epoch" not in results:
        return []
    graphs = [NAMES[dataset] for dataset in results["epoch"]]
    head = " | ".join(["one epoch with validation, ms (quartiles)", *graphs])
    lines = ["", f"| {head} |", "|---" * (1 + len(graphs)) + "|"]
    for name in ("straightforward", "torch", "compiled"):
        cells = [
            f"{p[name]['median_ms']:.1f} ({p[name]['q1_ms']:.1f}-{p[name]['q3_ms']:.1f})"
            for p in results["epoch"].values()
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    floors = [f"{p['floor']['median_ms']:.1f}" for p in results["epoch"].values()]
    return [*lines, f"| floor | {' | '.join(floors)} |"]


def card_page(recorded: dict[str, Any]) -> str:
    """Render the results of `gpu.py` as tables."""
    described = recorded["machine"]
    lines = [f"{described['card']}, torch {described['torch']}, {described['cores']} CPU cores."]
    for title, key in (("An epoch", "epoch"), ("One step of rk4", "straightforward")):
        programs = list(next(iter(recorded[key].values()))) if key in recorded else []
        rows = [
            [name, *[f"{of[p]['median_ms']:.1f}, {of[p]['peak_mb']:.0f}" for p in programs]]
            for name, of in recorded.get(key, {}).items()
        ]
        lines += _page_table([f"{title}, ms and peak MB", *programs], rows)
    fits = [[name, f"{of:.1f}"] for name, of in recorded.get("fit", {}).items()]
    lines += _page_table(["An epoch of a fit", "ms"], fits)
    counts = [
        [n, of["launches"], of["host_syncs"]] for n, of in recorded.get("launches", {}).items()
    ]
    lines += _page_table(["An epoch of Beltrami, Cora", "launches", "host syncs"], counts)
    worst = [
        [name, f"{of['seconds']:.1f}", f"{100 * of['robust']:.2f}"]
        for name, of in recorded.get("attack", {}).items()
    ]
    lines += _page_table(["Attack", "seconds", "accuracy in %"], worst)
    return "\n".join(lines) + "\n"


def _page_table(heads: list[str], rows: list[list[Any]]) -> list[str]:
    if not rows:
        return []
    lines = [heads, ["---"] * len(heads), *rows]
    return ["", *["| " + " | ".join(map(str, cells)) + " |" for cells in lines]]
