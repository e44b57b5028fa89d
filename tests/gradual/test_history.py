import json
from pathlib import Path

import pytest

from chita.gradual.history import EpochRow, History, draw_history

ROWS = tuple(
    EpochRow(
        epoch=epoch,
        pruned=epoch in (1, 3),
        sparsity=0.5 if epoch < 3 else 0.75,
        learning_rate=0.1,
        last_learning_rate=0.01,
        loss=1 / epoch,
        accuracy=90.0 + epoch,
        seconds=2.0,
    )
    for epoch in range(1, 5)
)
HISTORY = History(ROWS, accuracy=93.5, weights=2000, nonzeros=500)


def test_the_dictionary_can_be_written_as_json() -> None:
    told = json.loads(json.dumps(HISTORY.to_dict()))
    assert told["sparsity"] == 0.75
    assert told["seconds"] == 8.0
    assert told["accuracy"] == 93.5
    assert [EpochRow(**row) for row in told["epochs"]] == list(ROWS)


def test_the_figure_shows_each_pruning_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib", reason="figures need matplotlib")
    from chita.gradual import history

    drawn = []
    monkeypatch.setattr(history, "new_figure", _remembering(history.new_figure, drawn))
    draw_history(tmp_path / "history.png", ROWS, title="a title")
    assert (tmp_path / "history.png").read_bytes().startswith(b"\x89PNG")
    above, below = drawn[0].axes
    assert [text.get_text() for text in below.texts] == ["0.5", "0.75"]
    assert [text.xy for text in below.texts] == [(0, 0.1), (2, 0.1)]
    assert list(above.lines[0].get_ydata()) == [91.0, 92.0, 93.0, 94.0]
    assert list(below.lines[0].get_xdata()) == [0, 1, 1, 2, 2, 3, 3, 4]
    assert list(below.lines[0].get_ydata()) == [0.1, 0.01] * 4
    assert above.get_title() == "a title"


def _remembering(make, made):
    def make_and_remember(*arguments):
        made.append(make(*arguments))
        return made[-1]

    return make_and_remember
