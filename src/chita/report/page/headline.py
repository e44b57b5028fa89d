"""The top of the page of a run: the command, the main figures and the headline chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chita.report.page.folder import Record
from chita.report.page.parts import Part, axis, fact, lines, mapping, number, point, series
from chita.report.page.text import format_duration, format_share, format_size

THIS_RUN = "this run"


def lead(command: str, record: Record) -> str:
    """Return the command, and the data and seed if the record has them."""
    known = [f"{name} {record[name]}" for name in ("data", "seed") if record.get(name) is not None]
    return " · ".join([command, *known])


def facts_of(record: Record) -> list[Part]:
    """Return the main figures that the record of a run has."""
    score = _accuracy(record) or _test_loss(record)
    facts = [score, _sparsity(record), _held_out(record), _size(record)]
    if record.get("pattern"):
        facts.append(fact("pattern", str(record["pattern"])))
    seconds = number(mapping(record, "seconds"), "total") or number(record, "seconds")
    if seconds is not None:
        facts.append(fact("time", format_duration(seconds)))
    if (memory := number(record, "peak_memory_bytes")) is not None:
        facts.append(fact("peak memory", format_size(memory)))
    return [each for each in facts if each is not None]


def _accuracy(record: Record) -> Part | None:
    accuracy, dense = number(record, "accuracy"), number(record, "dense_accuracy")
    if accuracy is None:
        return None
    note = "" if dense is None else f"dense: {dense:.2f} % ({accuracy - dense:+.2f} points)"
    return fact("test accuracy", f"{accuracy:.2f} %", note)


def _test_loss(record: Record) -> Part | None:
    """Return the loss on the test data, which outputs that are not classes have instead."""
    loss, dense = number(record, "test_loss"), number(record, "dense_test_loss")
    if loss is None:
        return None
    return fact("test loss", f"{loss:.4g}", "" if dense is None else f"dense: {dense:.4g}")


def _sparsity(record: Record) -> Part | None:
    sparsity, note = number(record, "sparsity"), ""
    kept, weights = number(record, "nonzeros"), number(record, "weights")
    if kept is not None and weights:
        note = f"{kept:,} of {weights:,} weights kept"
        sparsity = 1 - kept / weights if sparsity is None else sparsity
    return None if sparsity is None else fact("sparsity", format_share(sparsity), note)


def _held_out(record: Record) -> Part | None:
    loss, error = number(record, "held_out_loss"), number(record, "held_out_error")
    if loss is None:
        return None
    return fact("held-out loss", f"{loss:.4g}", "" if error is None else f"± {error:.2g}")


def _size(record: Record) -> Part | None:
    counts = mapping(record, "counts")
    pruned, dense = number(counts, "pruned_bytes"), number(counts, "dense_bytes")
    if pruned is None or dense is None:
        return None
    return fact("size without zeros", format_size(pruned), f"dense: {format_size(dense)}")


def beside_the_paper(
    record: Record, ours: Sequence[Part], published: Mapping[str, Sequence[Part]], text: str
) -> Part:
    """Return a chart of the run's accuracy against sparsity, with the paper's methods if known.

    Args:
        record: the record of the run; its dense accuracy is a level.
        ours: the points of the run.
        published: the points of the paper's methods, by name; may be empty.
        text: what the reader must know to compare them.
    """
    dense = number(record, "dense_accuracy")
    style = "bold" if len(ours) > 1 else "dots"
    curves = [
        series(f"{method}, paper", points, style="paper", colour=colour)
        for colour, (method, points) in enumerate(published.items(), start=1)
    ]
    return lines(
        "Test accuracy against sparsity",
        axis("sparsity", "share"),
        axis("test accuracy", "percent"),
        [*curves, series(THIS_RUN, ours, style=style)],  # the run is drawn above the others
        levels=None if dense is None else {f"dense, {THIS_RUN}": dense},
        text=text,
    )


def before_and_after(record: Record, states: Mapping[str, str]) -> Part | None:
    """Return a chart of the accuracies before and after the run, or else of the test losses.

    Args:
        record: the record of the run.
        states: the states of the network in order, and the pattern of the keys of its scores, such
            as "dense_{}" for dense_accuracy and dense_test_loss.

    Returns:
        The chart; None if fewer than two scores are known.
    """
    for score, y in (
        ("accuracy", axis("test accuracy", "percent")),
        ("test_loss", axis("test loss")),
    ):
        figures = {state: number(record, key.format(score)) for state, key in states.items()}
        known = {state: value for state, value in figures.items() if value is not None}
        if len(known) > 1:
            points = [point(x, value) for x, value in enumerate(known.values())]
            return lines(
                f"{y['label'].capitalize()} before and after",
                axis("", names=list(known)),
                y,
                [series(THIS_RUN, points, style="bold")],
            )
    return None
