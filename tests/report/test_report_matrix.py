"""Which axes become rows and which columns, and where excluded combinations stand."""

from seatrial.job import CellResult, Excluded, Verdict
from seatrial.report.view.grid import Matrix, matrices


def cells(*axes: dict[str, str], trial: str = "t") -> list[CellResult]:
    return [CellResult(f"{trial}[{one}]", f"{n:08x}", one, Verdict.PASSED, trial=trial) for n, one in enumerate(axes)]


def only(*axes: dict[str, str], excluded: tuple[Excluded, ...] = ()) -> Matrix[CellResult]:
    (matrix,) = matrices(cells(*axes), excluded)
    return matrix


def test_machines_are_the_columns_whatever_the_order() -> None:
    matrix = only(
        {"machine": "m1", "runtime": "a"}, {"machine": "m2", "runtime": "a"}, {"machine": "m1", "runtime": "b"}
    )
    assert (matrix.rows, matrix.columns) == (("a", "b"), ("m1", "m2"))
    assert matrix.row_title == "runtime"


def test_without_machines_the_last_axis_that_varies_makes_the_columns() -> None:
    matrix = only({"model": "x", "dtype": "f32", "seed": "1"}, {"model": "y", "dtype": "f16", "seed": "1"})
    assert (matrix.row_title, matrix.fixed) == ("model", "seed=1")


def test_one_axis_is_a_list() -> None:
    matrix = only({"config": "a"}, {"config": "b"})
    assert (matrix.rows, matrix.columns) == (("a", "b"), ("",))


def test_no_axis_is_one_place() -> None:
    matrix = only({})
    assert (matrix.rows, matrix.columns, len(matrix.cells)) == (("t",), ("",), 1)


def test_one_axis_that_varies_beside_a_fixed_one_is_a_list_with_a_title() -> None:
    matrix = only({"model": "x", "dtype": "f32"}, {"model": "y", "dtype": "f32"})
    assert (matrix.rows, matrix.columns) == (("x", "y"), ("f32",))


def test_three_axes_that_vary_share_the_rows() -> None:
    axes = [{"runtime": r, "python": p, "machine": m} for r in "ab" for p in ("3.11", "3.12") for m in ("m1", "m2")]
    matrix = only(*axes)
    assert matrix.rows == ("a, 3.11", "a, 3.12", "b, 3.11", "b, 3.12")
    assert len(matrix.cells) == 8


def test_each_trial_has_its_own_matrix() -> None:
    made = matrices([*cells({"a": "1"}), *cells({"b": "2"}, trial="u")], [Excluded("v", {"c": "3"}, "why")])
    assert [matrix.trial for matrix in made] == ["t", "u", "v"]


def test_a_hole_stands_in_its_place_and_one_of_fewer_axes_in_none() -> None:
    excluded = (Excluded("t", {"runtime": "b", "machine": "m1"}, "no driver"), Excluded("t", {"runtime": "c"}, "never"))
    matrix = only({"runtime": "a", "machine": "m1"}, {"runtime": "b", "machine": "m2"}, excluded=excluded)
    assert matrix.excluded == {(1, 0): "no driver"}


def test_what_only_this_run_left_out_takes_no_place() -> None:
    excluded = (Excluded("t", {"runtime": "b", "machine": "m1"}, "not asked for", "select"),)
    assert only({"runtime": "a", "machine": "m1"}, excluded=excluded).rows == ("a",)


def test_a_cell_wins_over_a_hole_of_the_same_place() -> None:
    excluded = (Excluded("t", {"runtime": "a", "machine": "m1"}, "not this repeat"),)
    matrix = only({"runtime": "a", "machine": "m1"}, {"runtime": "b", "machine": "m1"}, excluded=excluded)
    assert (0, 0) in matrix.cells


def test_ten_thousand_holes_do_not_make_ten_thousand_rows() -> None:
    excluded = tuple(Excluded("t", {"runtime": f"r{n}", "machine": "m1"}, "cut") for n in range(10_000))
    assert len(only({"runtime": "a", "machine": "m1"}, excluded=excluded).rows) <= 200


def test_values_stand_in_the_order_of_the_suite_whatever_cells_there_are() -> None:
    """The first runtime has no cell on the first machine; rows and columns begin with them all the same."""
    labels = {"t": {"runtime": ("r1", "r2"), "machine": ("m1", "m2", "m3")}}
    placed = cells({"runtime": "r2", "machine": "m1"}, {"runtime": "r1", "machine": "m2"})
    excluded = (Excluded("t", {"runtime": "r1", "machine": "m1"}, "too small", "needs"),)
    (matrix,) = matrices(placed, excluded, labels)
    assert (matrix.rows, matrix.columns) == (("r1", "r2"), ("m1", "m2"))
    assert matrix.cells == {(1, 0): placed[0], (0, 1): placed[1]}
    assert matrix.excluded == {(0, 0): "too small"}
