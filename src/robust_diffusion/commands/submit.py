"""Entry of a submitted graph into the zoo, from where the leaderboard reads it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robust_diffusion.commands.reading import read_chosen
from robust_diffusion.config import PUBLISHED_RECORDS
from robust_diffusion.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

    from robust_diffusion.attacks import Budget
    from robust_diffusion.evaluation.report import AttackReport, RobustnessReport
    from robust_diffusion.evaluation.zoo import Zoo, ZooEntry
    from robust_diffusion.records.submission import Submission


def enter_report(
    folder: Path,
    report: "RobustnessReport",
    accuracies: Mapping[str, float],
    *,
    author: str,
    zoo: str | Path | None,
    records: Sequence[str] | None,
) -> Iterator[str]:
    """Add each graph of a verified report that lowers a number to the zoo; yield what was done.

    Args:
        folder: Folder of the report.
        report: The report, whose entries were verified.
        accuracies: Accuracy of each attack in %, measured again.
        author: Whom the leaderboard names.
        zoo: Folder of the zoo; `None` for the published one.
        records: Records of the board; none for the published ones.

    Raises:
        DataError: The report is about another model, other target nodes or an unpublished run.
    """
    # Imported late, so that `--help` is answered at once.
    from robust_diffusion.evaluation.zoo import INDEX, Zoo, write_index
    from robust_diffusion.records.submission import read_submissions
    from robust_diffusion.results.frame import narrow_frame
    from robust_diffusion.results.leaderboard import board_records, with_submissions
    from robust_diffusion.system.tensor_hashes import tensor_hash

    opened = Zoo.open(zoo)
    entry = next((one for one in opened.entries if one.weights == report.weights), None)
    if entry is None:
        raise DataError(
            f"--enter: {folder}: no model of the zoo has its weights; attack one of load_model(), "
            "or have yours published first"
        )
    if entry.target_nodes != tensor_hash(report.clean.target_nodes.sort().values):
        raise DataError(
            f"--enter: {folder}: expected the target nodes of open_dataset({entry.dataset!r}), got "
            "others; pass that datamodule to evaluate"
        )
    runs = narrow_frame(board_records(read_chosen(records or [PUBLISHED_RECORDS], required=True)))
    frame = with_submissions(runs, read_submissions(opened.directory / INDEX))
    of_run = runs[runs["run"] == entry.run]
    if of_run.empty:
        raise DataError(f"--enter: run {entry.run} of {entry.key} has no record; name --records")
    for attack in report.attacks:
        if not attack.is_control:
            budget: Budget = of_run["budget"].iloc[0]
            accuracy = accuracies[attack.name]
            found = _judged(attack, report, frame, entry, budget, accuracy, author)
            if isinstance(found, str):
                yield f"{folder}: {attack.name}: not entered: {found}"
            else:
                entry = _added(entry, found, folder, attack, opened)
                others = [one for one in opened.entries if one.key != entry.key]
                write_index(opened.directory, [*others, entry])
                yield (
                    f"{folder}: {attack.name}: entered as {found.author}'s; {entry.key} falls from "
                    f"{100 * found.earlier:.1f} to {100 * found.accuracy:.1f} % within "
                    f"{found.nodes} nodes of {found.edges} edges; run `make publish`"
                )


def _judged(
    attack: "AttackReport",
    report: "RobustnessReport",
    frame: "pd.DataFrame",
    entry: "ZooEntry",
    budget: "Budget",
    accuracy: float,
    author: str,
) -> "Submission | str":
    """Return the submission of one graph, or why it does not count and what to do."""
    from robust_diffusion.attacks import spent_budget
    from robust_diffusion.attacks.audit import audit
    from robust_diffusion.records.submission import checked_submission
    from robust_diffusion.results.leaderboard import GRID, best_known

    spent = spent_budget(report.clean, attack.graph)
    nodes, edges = spent.injected_nodes, spent.max_edges_per_injected_node
    own = budget.max_injected_nodes, budget.max_edges_per_injected_node
    fitting = [(n, e) for n, e in {*GRID, own} if nodes <= n and edges <= e]
    if not nodes or not fitting:
        return (
            f"it injects {nodes} nodes of up to {edges} edges, which is outside of the budgets of "
            f"the board; stay within {own[0]} nodes of {own[1]}"
        )
    within = min(fitting, key=lambda point: (point[0] * point[1], point))
    allowed = replace(
        budget, max_injected_nodes=within[0], max_edges_per_injected_node=within[1]
    ).bounds
    targets: Any = report.clean.target_nodes
    found = audit(report.clean, attack.graph, kind="injection", target_nodes=targets, **allowed)
    if broken := [violation.message for violation in found if violation.level == "error"]:
        return f"{broken[0]}; attack within the budget of the board, {budget}"
    earlier, by = best_known(frame, entry.run, within)
    share = round(accuracy / 100 * len(targets)) / len(targets)
    if share >= earlier:
        return (
            f"it leaves {100 * share:.1f} %, and the board has {100 * earlier:.1f} % within "
            f"{within[0]} nodes of {within[1]} edges, by {by}; a stronger attack is needed"
        )
    return checked_submission(
        author=author,
        attack=attack.name,
        nodes=nodes,
        edges=edges,
        accuracy=share,
        graph="graph",
        graph_sha256="",
        earlier=earlier,
        earlier_attack=by,
    )


def _added(
    entry: "ZooEntry",
    submission: "Submission",
    folder: Path,
    attack: "AttackReport",
    zoo: "Zoo",
) -> "ZooEntry":
    """Copy the graph into the zoo, and return the entry with the submission."""
    from robust_diffusion.evaluation.report import graph_file
    from robust_diffusion.system.files import write_whole
    from robust_diffusion.system.hashes import file_hash

    source = folder / graph_file(attack.name)
    digest = file_hash(source)
    name = f"graph-{entry.key}-{submission.nodes}x{submission.edges}-{digest[:8]}.safetensors"
    write_whole(zoo.directory / name, source.read_bytes(), option="--zoo")
    whole = replace(submission, graph=name, graph_sha256=digest)
    return replace(entry, submissions=[*entry.submissions, whole])
