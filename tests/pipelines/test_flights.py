"""The flights pipeline: its table, and the promises that the step builds on."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from sklearn.metrics import roc_auc_score

from pipelines.flights import (
    CATEGORIES,
    MASKED,
    NUMBERS,
    SCHEMA,
    SCORE_BINS,
    SLOTS,
    Flights,
    area_under_curve,
    check_fit,
    csv_folder,
    fit,
    read_csv,
    rows_of,
    score_histogram,
)
from pipelines.flights_settings import ModelSettings
from pliant.configure import load_config
from pliant.data.nulls import apply_policies, check_policies
from pliant.errors import ConfigError, UsageError, UserCodeError
from pliant.registry import find_pipeline
from tests.command import ROOT

POLICIES = load_config(find_pipeline("flights", cwd=ROOT)).config.data.nulls

FLIGHTS = """\
year,month,day,sched_dep_time,dep_delay,sched_arr_time,arr_delay,carrier,tailnum,origin,dest,distance,time_hour
2013,12,31,2355,-3,35,16,UA,N1,EWR,IAH,1400,2014-01-01T04:00:00Z
2013,1,5,600,90,805,15,XX,N9,JFK,MIA,1089,2013-01-05T11:00:00Z
2013,1,5,600,NA,805,NA,AA,N1,JFK,MIA,1089,2013-01-05T11:00:00Z
2013,1,6,1745,0,1900,-20,AA,NA,LGA,BOS,184,2013-01-06T22:00:00Z
"""
PLANES = "tailnum,year,engine\nN0,1999,Reciprocating\nN1,NA,Turbo-fan\n"
WEATHER = """origin,time_hour,temp,humid,wind_speed,wind_gust,precip,pressure,visib
JFK,2013-01-05T10:00:00Z,41,50,5,NA,0.5,NA,3
JFK,2013-01-05T09:00:00Z,39,61,7,21.5,0,1012.5,10
EWR,2013-01-05T09:00:00Z,12,61,7,21.5,0,1012.5,10
"""


@pytest.fixture
def small(tmp_path):
    """The rows of four flights, one of them cancelled."""
    tables = []
    for name, text in {"flights": FLIGHTS, "planes": PLANES, "weather": WEATHER}.items():
        (tmp_path / f"{name}.csv").write_text(text)
        tables.append(read_csv(tmp_path / f"{name}.csv"))
    return rows_of(*tables)


@pytest.fixture(scope="module")
def prepared():
    return {split.name: pa.Table.from_batches(split.batches) for split in Flights(ModelSettings()).prepare()}


@pytest.fixture
def flights():
    return Flights(ModelSettings(width=8, depth=2, dropout=0.0))


def read(table):
    """What the stream hands to the collate: the policies of flights.yaml carried out."""
    check_policies(table.schema, POLICIES)
    return apply_policies(table.select(SCHEMA.names), POLICIES)


def part(batch, index):
    return {name: column[index] for name, column in batch.items()}


# --- data


def test_rows_hold_what_is_known_at_departure(small):
    names = ["late", "month", "scheduled_dep", "scheduled_arr", "scheduled_minutes", "weekday"]
    assert list(zip(*(small[name].to_pylist() for name in names), strict=True)) == [
        (True, 12, 23 * 60 + 55, 35, 40, "Tue"),
        (False, 1, 6 * 60, 8 * 60 + 5, 125, "Sat"),
        (False, 1, 17 * 60 + 45, 19 * 60, 75, "Sun"),
    ]
    assert small["carrier"].to_pylist() == ["UA", "XX", "AA"]
    told_later = {"arr_time", "arr_delay", "air_time", "dep_time"}
    assert told_later.isdisjoint(small.column_names)


def test_weather_is_that_of_two_hours_before_at_the_same_airport(small):
    names = ["temp", "humid", "wind_speed", "wind_gust", "precip", "pressure", "visib"]
    nothing = dict.fromkeys(names)
    found = dict(zip(names, [39, 61, 7, 21.5, 0, 1012.5, 10], strict=True))
    assert small.select(names).to_pylist() == [nothing, found, nothing]


def test_planes_that_are_not_found_and_holes_in_what_is_found_are_nulls(small):
    assert small.select(["plane_year", "engine"]).to_pylist() == [
        {"plane_year": None, "engine": "Turbo-fan"},
        {"plane_year": None, "engine": None},
        {"plane_year": None, "engine": None},
    ]


def test_prepare_writes_every_flight_that_arrived_once(prepared):
    flights = read_csv(csv_folder() / "flights.csv.zip")
    assert flights.num_rows == 336_776
    train, validation = prepared["train"], prepared["validation"]
    assert train.schema.equals(SCHEMA)
    assert train.num_rows + validation.num_rows == 336_776 - flights["arr_delay"].null_count == 327_346
    december = flights.filter(pc.and_(pc.equal(flights["month"], 12), flights["arr_delay"].is_valid()))
    assert validation["dep_delay"].to_pylist() == december["dep_delay"].to_pylist()
    assert pc.sum(validation["late"]).as_py() == pc.sum(pc.greater(december["arr_delay"], 15)).as_py()
    late = np.array(train["late"].to_pylist())
    thirds = [chunk.mean() for chunk in np.array_split(late, 3)]
    assert max(thirds) - min(thirds) < 0.01, "mixed: no third of the rows is another season"


def test_prepare_repeats_itself(prepared):
    again = next(Flights(ModelSettings()).prepare())
    assert pa.Table.from_batches(again.batches).equals(prepared["train"])


def test_nulls_of_the_prepared_rows_are_those_that_the_settings_name(prepared):
    table = pa.concat_tables(prepared.values())
    with_nulls = {name for name in SCHEMA.names if table[name].null_count}
    assert with_nulls == {*POLICIES, "engine"}
    assert {name for name, policy in POLICIES.items() if policy == "mask"} == set(MASKED)


def test_constants_are_fitted_on_the_training_rows_alone(prepared):
    numbers, categories = fit(prepared["train"])
    assert (numbers, categories) == (NUMBERS, CATEGORIES)
    with pytest.raises(UserCodeError, match=r"(?s)NUMBERS was fitted on other .* give \{'dep_delay'.*flights.py"):
        check_fit(prepared["validation"])
    delay = np.array(prepared["train"]["dep_delay"].to_pylist())
    assert numbers["dep_delay"] == (float(f"{delay.mean():.4g}"), float(f"{delay.std():.4g}"))


def test_without_the_package_the_error_says_how_to_get_it():
    with pytest.raises(
        UsageError, match=r"package no_such_flights, and it is not installed\n  pip install no_such_flights"
    ):
        csv_folder("no_such_flights")
    with pytest.raises(UsageError, match=r"package email, and it has no data/flights\.csv\.zip"):
        csv_folder("email")


# --- collate


def test_collate_gives_numbers_and_slots(small, flights):
    for table in (read(small), read(small).slice(0, 0)):
        batch = flights.collate(table)
        assert {name: (column.dtype, tuple(column.shape)) for name, column in batch.items()} == {
            "numbers": (torch.float32, (table.num_rows, len(NUMBERS) + len(MASKED))),
            "slots": (torch.int64, (table.num_rows, len(CATEGORIES))),
            "late": (torch.bool, (table.num_rows,)),
        }


def test_numbers_are_standardised_and_masked_ones_are_zero(small, flights):
    numbers = flights.collate(read(small))["numbers"]
    by_name = dict(zip([*NUMBERS, *(f"{name}__valid" for name in MASKED)], numbers.T.tolist(), strict=True))
    mean, deviation = NUMBERS["dep_delay"]
    assert by_name["dep_delay"] == pytest.approx([(minutes - mean) / deviation for minutes in (-3, 90, 0)], rel=1e-5)
    mean, deviation = NUMBERS["temp"]
    assert by_name["temp"] == pytest.approx([0, (39 - mean) / deviation, 0], rel=1e-5)
    assert by_name["temp__valid"] == [0, 1, 0]
    assert by_name["plane_year"] == by_name["plane_year__valid"] == [0, 0, 0]
    mean, deviation = NUMBERS["visib"]
    assert by_name["visib"] == pytest.approx([(10 - mean) / deviation] * 3, rel=1e-5)


def test_what_is_far_out_is_cut(small, flights):
    table = read(small)
    wind = pa.array([1048.4, 7, 7], pa.float32())
    table = table.set_column(table.schema.get_field_index("wind_speed"), "wind_speed", wind)
    table = table.set_column(
        table.schema.get_field_index("wind_speed__valid"), "wind_speed__valid", pa.array([True] * 3)
    )
    column = flights.collate(table)["numbers"][:, list(NUMBERS).index("wind_speed")]
    assert column[0] == 8
    assert column[1].item() == pytest.approx((7 - NUMBERS["wind_speed"][0]) / NUMBERS["wind_speed"][1], rel=1e-5)


def test_unknown_values_and_nulls_have_a_slot_of_their_own(small, flights):
    slots = flights.collate(read(small))["slots"]
    starts = np.cumsum([0, *SLOTS.values()])
    places = {name: (slots[:, i] - int(starts[i])).tolist() for i, name in enumerate(CATEGORIES)}
    assert places["carrier"] == [CATEGORIES["carrier"].index("UA"), len(CATEGORIES["carrier"]), 1]
    assert places["engine"] == [CATEGORIES["engine"].index("Turbo-fan"), *[len(CATEGORIES["engine"])] * 2]
    every = torch.cat([slots[:, i].unique() for i in range(len(CATEGORIES))])
    assert len(every.unique()) == len(every), "no two categories share a slot"
    assert int(every.max()) < sum(SLOTS.values())


def test_a_category_that_training_never_saw_says_nothing(flights):
    model = flights.model()
    ends = np.cumsum(list(SLOTS.values()))
    assert not model.embedding.weight[ends - 1].any()
    assert int(model.embedding.weight.any(dim=1).sum()) == sum(SLOTS.values()) - len(SLOTS)


def test_another_policy_for_a_masked_number_is_refused_with_its_setting(small, flights):
    table = apply_policies(small, {**POLICIES, "temp": 50.0})
    with pytest.raises(ConfigError, match=r"data\.nulls\.temp.*mask"):
        flights.collate(table)


# --- loss and figures


def test_no_rows_give_zero_sums_and_zero_gradients(small, flights):
    model = flights.model()
    loss = flights.loss(model, flights.collate(read(small).slice(0, 0)))
    loss.total.backward()
    assert (loss.total.item(), loss.weight.item(), loss.sums["accuracy"].item()) == (0, 0, 0)
    assert not loss.counts["scores"].any()
    assert all(p.grad is not None and not p.grad.any() for p in model.parameters())


def test_sums_counts_and_gradients_of_a_batch_are_those_of_its_parts(prepared, flights):
    model = flights.model()
    batch = flights.collate(read(prepared["validation"].slice(0, 50)))
    parts = [flights.loss(model, part(batch, index)) for index in (slice(0, 17), slice(17, 50))]
    sum(p.total for p in parts).backward()
    of_parts = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    whole = flights.loss(model, batch)
    whole.total.backward()
    torch.testing.assert_close(whole.total, sum(p.total for p in parts), rtol=1e-5, atol=0)
    assert whole.weight == sum(p.weight for p in parts) == 50
    assert torch.equal(whole.sums["accuracy"], sum(p.sums["accuracy"] for p in parts))
    assert torch.equal(whole.counts["scores"], sum(p.counts["scores"] for p in parts))
    torch.testing.assert_close([p.grad for p in model.parameters()], of_parts, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("spread", [1.0, 12.0, 0.0], ids=["plain", "at the ends", "all alike"])
def test_the_area_is_that_of_scikit_learn_within_its_error(spread):
    generator = torch.Generator().manual_seed(0)
    late = torch.rand(20_000, generator=generator) < 0.24
    scores = (spread * (torch.randn(20_000, generator=generator) + late)).sigmoid()
    histogram = sum(score_histogram(s, t) for s, t in zip(scores.split(3000), late.split(3000), strict=True))
    assert histogram.shape == (2, SCORE_BINS)
    assert histogram.sum(dim=1).tolist() == [int((~late).sum()), int(late.sum())]
    area, error = area_under_curve(histogram)
    assert abs(area - roc_auc_score(late, scores)) <= error + 1e-12
    assert {1.0: error < 5e-4, 12.0: error < 0.1, 0.0: error == 0.5}[spread]


def test_the_area_of_one_class_alone_is_no_number(flights):
    nothing = score_histogram(torch.rand(5), torch.zeros(5, dtype=torch.bool))
    assert all(np.isnan(figure) for figure in area_under_curve(nothing))


def test_perfect_and_reversed_scores():
    late = torch.tensor([False, False, True, True])
    scores = torch.tensor([0.0, 0.2, 0.7, 1.0])
    assert area_under_curve(score_histogram(scores, late)) == (1.0, 0.0)
    assert area_under_curve(score_histogram(1 - scores, late)) == (0.0, 0.0)
    assert Flights(ModelSettings()).from_counts({"scores": score_histogram(scores, late)}) == {
        "auc": 1.0,
        "auc_error": 0.0,
    }
