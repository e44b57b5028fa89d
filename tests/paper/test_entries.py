import pytest

from chita.paper.settings import paper_grid, quick_grid
from chita.paper.table1 import ENTRIES, TABLE_METHODS
from chita.report import published as paper


def test_the_main_rows_are_the_methods_of_the_paper() -> None:
    main = {entry.method: entry.title for entry in ENTRIES if entry.main}
    assert main == {m: title for m, title in paper.NAMES.items() if m != "chita-cd"}
    assert tuple(main) == TABLE_METHODS
    assert len({entry.title for entry in ENTRIES}) == len(ENTRIES)


@pytest.mark.parametrize("network", ["mlpnet", "resnet20", "mobilenetv1", "resnet50"])
@pytest.mark.parametrize("grid", [paper_grid, quick_grid])
def test_each_setting_is_in_one_row(network: str, grid) -> None:
    for method in TABLE_METHODS:
        rows = [entry for entry in ENTRIES if entry.method == method]
        for setting in grid(network, method):
            assert sum(entry.takes(setting) for entry in rows) == 1


@pytest.mark.parametrize("network", ["mlpnet", "resnet20"])
def test_all_rows_of_chita_have_an_automatic_and_a_fixed_lambda(network: str) -> None:
    for entry in ENTRIES:
        if entry.method in ("chita-bso", "chita++"):
            settings = filter(entry.takes, paper_grid(network, entry.method))
            automatic = {setting.ridge == "auto" for setting in settings}
            assert automatic == {True, False}, entry.title
