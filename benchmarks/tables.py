"""Results as Markdown, ratios first."""

from collections.abc import Iterator
from typing import Any

NAMES = {
    "cora": "Cora",
    "amazon_computer": "Amazon",
    "coauthor": "Coauthor",
    "planetoid_citeseer": "Planetoid's Citeseer",
    "generated": "generated",
}
TARGETS = {
    "epoch, Cora, torch": 2.0,
    "epoch, Cora, compiled": 3.0,
    "epoch, Amazon, torch": 8.0,
    "epoch, Amazon, compiled": 14.0,
    "epoch of hang, Cora, package / public program": 3.0,
    "epoch of hang_quad, Cora, package / public program": 3.0,
    "epoch of gread, Cora, package / public program": 3.0,
    "epoch of frond, Cora, package / public program": 3.0,
    "two threads / one, Amazon": 1.7,
    "two threads / one, 3,000,000 edges": 1.7,
}
"""Required speed-up over the program of the comparison."""

LIMITS = {
    "memory, Cora": 60.0,
    "memory, Amazon": 400.0,
    "memory, Amazon, whole graph": 800.0,
    "training": 40.0,
    "white-box SPEIT, 3 x 64, one step": 10.0,
    "attack=auto, Beltrami 4 x 128, Cora": 300.0,
    "exponent of time, compiled": 1.1,
    "epoch of hang / of beltrami, Cora": 1.0,
    "epoch of hang_quad / of beltrami, Cora": 1.0,
    "seeds, 5": 0.55,
    "loading, Amazon": 5.0,
    "loading, Coauthor": 5.0,
    "loading, generated": 60.0,
    "memory of loading, Amazon": 2.5,
    "memory of loading, Coauthor": 2.5,
    "memory of loading, generated": 12.0,
}
"""Upper limits, in MB, seconds or GiB; that of `seeds` is a share of the sequential time."""


def ratios(results: dict[str, Any]) -> dict[str, float]:
    """Return the speed-up of each program over the one that it is compared with."""
    return dict(_ratios(results))


def _ratios(results: dict[str, Any]) -> Iterator[tuple[str, float]]:
    for dataset, programs in results.get("epoch", {}).items():
        yardstick = programs["straightforward"]["median_ms"]
        for backend in ("reference", "torch", "compiled"):
            yield (
                f"epoch, {NAMES[dataset]}, {backend}",
                yardstick / programs[backend]["median_ms"],
            )
    yield from _against_public(results)
    for case, subject in (("words", "epoch"), ("guard", "epoch of GNNGuard")):
        for dataset, features in results.get(case, {}).items():
            yield (
                f"{subject}, {NAMES[dataset]}, features as prepared / plain",
                features["plain"]["median_ms"] / features["prepared"]["median_ms"],
            )
    for dataset, programs in results.get("gin", {}).items():
        yield (
            f"epoch of GIN, {NAMES[dataset]}, sums after projecting / before",
            programs["before"]["median_ms"] / programs["after"]["median_ms"],
        )
    for dataset, programs in results.get("sage", {}).items():
        yield (
            f"epoch of GraphSAGE, {NAMES[dataset]}, pooled in parts / whole",
            programs["whole"]["median_ms"] / programs["parts"]["median_ms"],
        )
    yield from _large(results)
    yield from _of_votes(results.get("votes", {}))
    if "rows" in results:
        apart, together = (results["rows"][name]["median_ms"] for name in ("apart", "together"))
        yield "SPEIT, Coauthor, rows that stay apart / put together", together / apart


def _against_public(results: dict[str, Any]) -> Iterator[tuple[str, float]]:
    epochs = results.get("successors", {})
    for name in epochs:
        if (public := f"{name}, public") in epochs:
            times = epochs[public]["median_ms"] / epochs[name]["median_ms"]
            yield f"epoch of {name}, Cora, package / public program", times


def _large(results: dict[str, Any]) -> Iterator[tuple[str, float]]:
    for graph, runs in results.get("threads", {}).items():
        name = NAMES.get(graph) or f"{int(graph):,} edges"
        yield f"two threads / one, {name}", runs["1"]["median_ms"] / runs["2"]["median_ms"]
    if "freed" in results:
        given_back, kept = (results["freed"][of]["median_ms"] for of in ("given_back", "kept"))
        yield (
            "step on communities, 3,000,000 edges, freed memory kept / given back",
            (given_back / kept),
        )


def _of_votes(seconds: dict[str, Any]) -> Iterator[tuple[str, float]]:
    for name in seconds:
        case = name.removesuffix(", whole graphs")
        if case == name:
            ratio = seconds[f"{case}, whole graphs"]["median_ms"] / seconds[case]["median_ms"]
            yield f"draws of a certificate, {case}, as counted / twenty whole graphs a pass", ratio


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
    lines += _epochs(results) + _scaling(results)
    return "\n".join(lines) + "\n"


def _figures(results: dict[str, Any]) -> Iterator[tuple[str, float, str]]:
    for name, growth in results.get("memory", {}).items():
        for dataset, megabytes in growth.items():
            yield f"memory, {dataset}: {name}", megabytes, "MB"
    for backend, seconds in results.get("training", {}).items():
        yield f"training: 550 epochs on Cora, {backend}", seconds, "s"
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
    yield from _against_beltrami(results)
    yield from _roofline(results)
    yield from _growth(results)
    for count, sweep in results.get("seeds", {}).items():
        share = sweep["two processes"] / sweep["one after the other"]
        yield f"seeds, {count}: two processes / one after the other", share, ""
    for dataset, load in results.get("loading", {}).items():
        edges = f"{load['edges']:,} edges"
        yield f"loading, {NAMES[dataset]}: {edges}", load["seconds"], "s"
        yield f"memory of loading, {NAMES[dataset]}: {edges}", load["peak_gib"], "GiB"
    yield from _portable(results)
    for dataset, programs in results.get("epoch", {}).items():
        for backend in ("torch", "compiled"):
            share = programs[backend]["median_ms"] / programs["floor"]["median_ms"]
            yield f"epoch / floor, {NAMES[dataset]}: {backend}", share, ""


def _against_beltrami(results: dict[str, Any]) -> Iterator[tuple[str, float, str]]:
    for name, times in results.get("successors", {}).items():
        if name != "beltrami" and not name.endswith("public"):
            share = times["median_ms"] / results["successors"]["beltrami"]["median_ms"]
            yield f"epoch of {name} / of beltrami, Cora", share, ""


def _roofline(results: dict[str, Any]) -> Iterator[tuple[str, float, str]]:
    for dataset, figures in results.get("roofline", {}).items():
        bandwidth, epoch = figures["gigabytes_per_second"], figures["epoch"]["median_ms"]
        yield f"bandwidth of a triad, by turns with {NAMES[dataset]}", bandwidth, "GB/s"
        for count in ("streamed", "fetched"):
            megabytes = figures[f"{count}_mb"]
            share = megabytes / bandwidth / epoch
            yield f"epoch, {NAMES[dataset]}: {megabytes:,.0f} MB {count}, share of it", share, ""
        share = figures["products_ms"] / epoch
        yield f"epoch, {NAMES[dataset]}: dense products, share of it", share, ""


def _growth(results: dict[str, Any]) -> Iterator[tuple[str, float, str]]:
    if "growth" in results:
        sizes = [f"{p['edges']:,} edges {p['seconds']:.3g} s" for p in results["growth"]["points"]]
        exponent = results["growth"]["exponents"]["seconds"]
        yield f"exponent of time, compiled: {', '.join(sizes)}", exponent, ""


def _portable(results: dict[str, Any]) -> Iterator[tuple[str, float, str]]:
    for dataset, epochs in results.get("portable", {}).items():
        for model in dict.fromkeys(name.rpartition(", ")[0] for name in epochs):
            share = epochs[f"{model}, portable"]["median_ms"]
            share /= epochs[f"{model}, default"]["median_ms"]
            yield f"epoch of {model}, {NAMES[dataset]}: portable / default arithmetic", share, ""


def _epochs(results: dict[str, Any]) -> list[str]:
    if "epoch" not in results:
        return []
    graphs = [NAMES[dataset] for dataset in results["epoch"]]
    head = " | ".join(["one epoch with validation, ms (quartiles)", *graphs])
    lines = ["", f"| {head} |", "|---" * (1 + len(graphs)) + "|"]
    for name in ("straightforward", "reference", "torch", "compiled"):
        cells = [
            f"{p[name]['median_ms']:.1f} ({p[name]['q1_ms']:.1f}-{p[name]['q3_ms']:.1f})"
            for p in results["epoch"].values()
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    floors = [f"{p['floor']['median_ms']:.1f}" for p in results["epoch"].values()]
    return [*lines, f"| floor | {' | '.join(floors)} |"]


def _scaling(results: dict[str, Any]) -> list[str]:
    if "scaling" not in results:
        return []
    lines = ["", "![Time and memory against edges](scaling.svg)", ""]
    lines += ["| edges | backend | s per step of one layer | MB |", "|---|---|---|---|"]
    for backend, points in results["scaling"]["points"].items():
        lines += [
            f"| {p['edges']:,} | {backend} | {p['seconds']:.3g} | {p['megabytes']:.3g} |"
            for p in points
        ]
    for backend, exponents in results["scaling"]["exponents"].items():
        lines += [
            "",
            f"{backend}: time grows with edges to the power {exponents['seconds']:.2f}, "
            f"memory to the power {exponents['megabytes']:.2f}.",
        ]
    return lines


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
