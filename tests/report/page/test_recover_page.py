from pathlib import Path

from chita.report.page.folder import read_folder
from chita.report.page.recover_page import recover_page
from tests.report.page.folders import write_recover
from tests.support.messages import says


def test_the_headline_is_dense_pruned_and_recovered(tmp_path: Path) -> None:
    record = write_recover(tmp_path)
    page = recover_page(read_folder(tmp_path), record)
    assert page["headline"]["x"]["names"] == ["dense", "pruned", "recovered"]
    points = page["headline"]["series"][0]["points"]
    assert [point["y"] for point in points] == [96.875, 95.025, 95.325]
    facts = {fact["label"]: fact["value"] for fact in page["facts"]}
    assert (facts["sparsity"], facts["training steps"]) == ("75.00 %", "100")
    assert says(page["lead"], "chita recover", "runs/pruned", "seed 0")


def test_gain_of_the_training_and_layers_are_shown_and_the_rest_is_folded(tmp_path: Path) -> None:
    record = write_recover(tmp_path)
    page = recover_page(read_folder(tmp_path), record)
    gain, layers = page["sections"]
    assert [row["value"] for row in gain["charts"][0]["rows"]] == [0.0863, 0.0698]
    assert gain["text"] == ""
    assert layers["title"] == "Layers"
    titles = [fold["title"] for fold in page["folds"]]
    assert titles == ["All layers", "Masks", "Settings", "All figures"]


def test_a_training_that_was_undone_is_said_so(tmp_path: Path) -> None:
    record = write_recover(tmp_path, kept=False)
    gain, _ = recover_page(read_folder(tmp_path), record)["sections"]
    assert says(gain["text"], "unchanged")
