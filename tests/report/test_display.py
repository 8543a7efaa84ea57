"""Charts and how counts, models and evaluations show themselves, in words and in notebooks."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pandas as pd
import pytest
from helpers.browser import visit

import pairsym_dask as ps
from pairsym_dask.display.cards import card, table
from pairsym_dask.display.charts import HEIGHT, LEFT, WIDTH, Axis, Chart, sparkline, tick_text


def elements(svg: str, kind: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(svg).iter(kind))


def titles(svg: str) -> list[str]:
    return [element.text or "" for element in elements(svg, "title")]


def test_points_stand_where_their_values_are():
    svg = Chart(Axis("x", log=True), Axis("y")).points([1, 10, 100], [0.0, 1.0, 2.0], ["a", "b", "c"]).svg()
    left, middle, right = (float(circle.get("cx")) for circle in elements(svg, "circle"))
    assert middle == pytest.approx((left + right) / 2, abs=0.11)  # the logarithm of 10 is half that of 100
    heights = [float(circle.get("cy")) for circle in elements(svg, "circle")]
    assert heights == sorted(heights, reverse=True)
    assert all(LEFT <= x <= WIDTH for x in (left, right))
    assert titles(svg) == ["a", "b", "c"]


def test_values_that_an_axis_has_no_place_for_are_left_out():
    chart = Chart(Axis("x", log=True), Axis("y", log=True))
    chart.points([0, 1, 2, np.nan, 4], [1, np.inf, 3, 4, -1], ["zero", "infinite", "good", "nan", "negative"])
    assert titles(chart.svg()) == ["good"]


@pytest.mark.parametrize("values", [[], [5.0], [5.0, 5.0], [0.0, 0.0], [-3.0], [1e-9, 1e9], [-25.30e6, -25.27e6]])
@pytest.mark.parametrize("log", [False, True])
def test_any_values_make_a_drawing_with_readable_ticks(values, log):
    axis = Axis("y", log=log)
    svg = Chart(Axis("x"), axis).line(range(len(values)), values).svg()
    assert "nan" not in svg
    words = [text for _, text in axis.ticks()]
    assert 1 <= len(words) <= 12 or not values
    assert len(set(words)) == len(words)
    for circle in elements(svg, "circle"):
        assert 0 <= float(circle.get("cy")) <= HEIGHT


def test_ticks_differ_where_values_do():
    assert [tick_text(v, 0.5) for v in (1.0, 1.5)] == ["1.0", "1.5"]
    assert [tick_text(v, 10_000) for v in (-25_270_000, -25_260_000)] == ["-25.27M", "-25.26M"]


def test_names_do_not_lie_on_each_other():
    texts = ["one", "two", "three", "four"]
    chart = Chart(Axis("x"), Axis("y")).names([1, 1.001, 3, 3], [1, 1, 1, 2], texts)
    shown = [element.text for element in elements(chart.svg(), "text") if element.text in texts]
    assert "four" in shown
    assert len({"one", "two"} & set(shown)) <= 2
    assert titles(chart.svg()) == texts  # every one when the pointer rests on it


def test_markup_in_names_stays_text():
    chart = Chart(Axis("<x>"), Axis("y&")).points([1], [1], ["<b>"]).names([1], [1], ["</text>"])
    assert {"<b>", "</text>"} <= set(titles(chart.svg()))
    assert "<b>" not in table(["<b>"], [["<b>"]]) + card("<b>", {"<b>": "<b>"})


def test_a_small_line_ends_at_its_last_value():
    svg = sparkline([1.0, float("nan"), 3.0, 2.0], "three values")
    assert float(elements(svg, "circle")[0].get("cx")) == 136
    assert titles(svg) == ["three values"]
    assert sparkline([1.0], "one") == ""


def test_counts_and_models_show_shape_blocks_bytes_sweep_and_bound(small, small_model):
    words = small._repr_html_()
    for word in ("700 users x 90 items", f"{small.nnz:,}", "blocks", "iB in", small.path):
        assert word in words
    assert "700 users x 90 items" in repr(small)
    assert "not fitted" in ps.PairedSymbols(factors=7)._repr_html_()
    assert "factors=7" in repr(ps.PairedSymbols(factors=7))
    words, bound = small_model._repr_html_(), f"{small_model.history['elbo'].iloc[-1]:.10g}"
    for word in ("700 users x 90 items x 4 factors", "blocks", "a sweep", bound, "<svg", "after sweep 5"):
        assert word in words
    assert "700 users x 90 items" in repr(small_model)
    assert bound in repr(small_model)


def test_notebook_pieces_take_the_colours_of_the_page_around_them(small, small_model, tmp_path):
    unseen = [np.flatnonzero(row == 0)[0] for row in small.to_scipy()[:3].toarray()]
    pairs = pd.DataFrame({"user": [0, 1, 2], "item": unseen})
    evaluation = ps.evaluate(small_model, pairs)
    both = ps.compare({"one": small_model, "two": small_model}, pairs)
    pieces = "".join(piece._repr_html_() for piece in (small, small_model, evaluation, both))
    assert not re.search(r"background[-:]|[^-]color:", pieces)
    place = tmp_path / "dark.html"
    place.write_text(f'<meta charset="utf-8"><body style="background:#111;color:#eee">{pieces}', encoding="utf-8")
    ask = "[...new Set([...document.querySelectorAll('th, td, p')].map(e => getComputedStyle(e).color))].join()"
    seen = visit(place.as_uri(), ask)
    assert seen.value == "rgb(238, 238, 238)"
    assert seen.complaints == []


def test_numbers_of_an_axis_do_not_lie_on_each_other():
    x = Axis("x", log=True)
    drawing = Chart(x, Axis("y")).line([0.016, 0.14], [0, 1]).svg()
    found = re.findall(r'<text x="([\d.]+)" y="\d+" text-anchor="middle">(0\.\d+)<', drawing)
    assert 2 <= len(found) < len(x.ticks())
    for (one, text), (two, after) in itertools.pairwise(found):
        assert float(two) - float(one) >= 3.5 * (len(text) + len(after))
