"""Numbers that change over training: their written form and their values."""

import math
import re

import pytest

from gan.schedules import Schedule, span


def at(text, *images, total=1000):
    return [pytest.approx(Schedule.parse(text).at(seen, total)) for seen in images]


def test_a_number_is_constant():
    assert at("0.5", 0, 500, 1000, 5000) == [0.5] * 4
    assert Schedule.parse(3).at(7, 10) == 3.0


def test_linear():
    assert at("1..3", 0, 250, 500, 1000, 2000) == [1.0, 1.5, 2.0, 3.0, 3.0]


def test_cosine():
    quarter = 1 + 2 * (1 - math.cos(math.pi / 4)) / 2
    assert at("1..3,cosine", 0, 250, 500, 1000, 2000) == [1.0, quarter, 2.0, 3.0, 3.0]


def test_from_and_to():
    assert at("0.002..0.0002,from=60%", 0, 600, 800, 1000) == [0.002, 0.002, 0.0011, 0.0002]
    assert at("8..0,from=100,to=50%", 100, 200, 300, 500, 900) == [8, 6, 4, 0, 0]
    assert at("1..0,from=50%,to=50%", 499, 500, 501) == [1, 1, 0]  # a switch


def test_warmup():
    assert at("2,warmup=100", 0, 25, 100, 1000) == [0.0, 0.5, 2.0, 2.0]
    assert at("2..1,warmup=10%", 0, 50, 100, 1000) == [0, 0.975, 1.9, 1.0]


def test_ends_are_exact():
    for text in ("0.003..0.001", "0.9..0.99,to=50%", "0.3..0.03,cosine"):
        schedule = Schedule.parse(text)
        assert schedule.at(0, 12345) == schedule.start
        assert schedule.at(12345, 12345) == schedule.end


@pytest.mark.parametrize(
    ("text", "images"),
    [("20000", 20000), ("500k", 500e3), ("20M", 20e6), ("1.5k", 1500), ("60%", 600), ("1e3", 1000)],
)
def test_spans(text, images):
    assert span(text, 1000) == images


@pytest.mark.parametrize("text", ["", "-3", "x", "5 %%", "1kk", "60%%", "1e", "k"])
def test_what_is_no_span(text):
    expected = f"{text!r} is neither a number of images (20000, 500k, 20M) nor a share (60%)"
    with pytest.raises(ValueError, match=f"^{re.escape(expected)}$"):
        span(text, 1000)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("1", "1"),
        ("1.0", "1"),
        ("2e-4", "0.0002"),
        ("0.5..1", "0.5..1"),
        ("1..0, cosine, to=80%", "1..0,cosine,to=80%"),
        ("1..0,linear", "1..0"),
        ("3..2,warmup=5k,from=10%,to=90%", "3..2,from=10%,to=90%,warmup=5k"),
    ],
)
def test_written_form_goes_there_and_back(text, written):
    schedule = Schedule.parse(text)
    assert str(schedule) == written
    assert Schedule.parse(written) == schedule
    assert Schedule.parse(schedule) is schedule


@pytest.mark.parametrize(
    "text", ["", "x", "1..x", "1..2..3", "1,fast", "1,to=x", "1..2,until=5", "1,to", "1..2,=5"]
)
def test_what_is_no_schedule(text):
    expected = (
        f"{text!r} is no schedule; write a number, or START..END with any of linear, cosine, "
        "from=, to=, warmup= after commas, as in 0.3..0.03,cosine,to=80%"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(expected)}$"):
        Schedule.parse(text)


def test_values_are_what_it_moves_between():
    assert Schedule.parse("5").values == (5.0,)
    assert Schedule.parse("5..2").values == (5.0, 2.0)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1..nan", "0.1..inf,cosine"])
def test_what_is_not_finite_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not finite$"):
        Schedule.parse(text)
    with pytest.raises(ValueError, match=r"^nan is not finite$"):
        Schedule(float("nan"))


@pytest.mark.parametrize("text", ["1..0,from=80%,to=20%", "1..0,from=2k,to=1000"])
def test_an_end_before_the_beginning(text):
    with pytest.raises(ValueError, match="ends before it begins"):
        Schedule.parse(text)


def test_moments_of_two_kinds_cannot_be_compared_in_advance():
    assert Schedule.parse("1..0,from=80%,to=20").at(0, 100) == 1
