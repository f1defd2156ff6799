"""Published tables: their busbw column is what the formula gives from size and time."""

import pytest

from coursekit import measure


@pytest.mark.parametrize(
    ("name", "size", "busbw"),
    [
        ("h100-8", 1 << 30, 466.33),
        ("h100-8", 1 << 34, 479.90),
        ("h100-16", 1 << 30, 436.95),
        ("gb200-128", 1 << 29, 411.01),
    ],
)
def test_busbw_is_what_the_source_prints(name: str, size: int, busbw: float) -> None:
    (row,) = [r for r in measure.published(name).rows if r.size == size]
    assert row.busbw == pytest.approx(busbw, rel=2e-3)


def test_another_name_is_refused() -> None:
    with pytest.raises(measure.MeasureError, match=r"must be one of h100-8, .* got 'h200'"):
        measure.published("h200")
