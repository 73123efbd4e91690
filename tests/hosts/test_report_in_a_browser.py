"""A report as a browser shows it: no script error, nothing beside the screen, values under the pointer."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from pliant.report.html import write_report
from pliant.report.sweep import write_sweep_report
from pliant.tune.results import read_results
from tests.report.records import eventful
from tests.report.sweeps import ASHA, PBT, faults, recorded

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.hosts,
    pytest.mark.timeout(240),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: apt-get install chromium"),
]
QUIET = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars"),
]
LISTEN = """<script>
window.problems = [];
window.addEventListener("error", event => window.problems.push(event.message || "a resource"), true);
document.addEventListener("securitypolicyviolation", event => window.problems.push(event.violatedDirective));
</script>"""
LOOK = """<script>
const found = { problems: window.problems, ready: document.documentElement.dataset.ready, read: {} };
found.window = window.innerWidth;
found.page = document.documentElement.scrollWidth;
found.wide = [...document.querySelectorAll("body *")].filter(element =>
  !element.closest(".scroll, svg") && element.getBoundingClientRect().right > window.innerWidth + 0.5
).map(element => element.outerHTML.slice(0, 120));
found.back = getComputedStyle(document.body).backgroundColor;
for (const figure of document.querySelectorAll("figure")) {
  const plot = figure.querySelector(".plot"), box = plot.getBoundingClientRect();
  const line = plot.querySelector(".scale:not([hidden]) path[data-t]");
  const at = line && line.getPointAtLength(0).matrixTransform(line.getScreenCTM());
  plot.dispatchEvent(
    new PointerEvent("pointermove", line ? { clientX: at.x, clientY: at.y } : { clientX: box.left + box.width * 0.5 }),
  );
  found.read[figure.id] = figure.querySelector(".read").textContent;
  plot.dispatchEvent(new PointerEvent("pointerleave"));
}
const first = document.querySelector("figure");
first.querySelectorAll(".scales button").forEach(button => {
  button.click();
  found[button.textContent] = [...first.querySelectorAll(".scale")].map(scale => scale.hidden);
});
first.querySelector(".plot").dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
found.key = first.querySelector(".read").textContent;
found.marked = [...document.querySelectorAll(".on")].map(element => element.closest("figure, table").id);
const listed = document.querySelector("#trials-table");
if (listed) {
  const order = () => [...listed.tBodies[0].rows].map(row => Number(row.dataset.t));
  const [name, value] = [0, 2].map(column => listed.tHead.rows[0].cells[column]);
  found.order = [name, name, value].map(head => (head.click(), order()));
}
found.problems = window.problems;
parent.postMessage(JSON.stringify(found), "*");
</script>"""


FRAME = """<html style="color-scheme: light dark"><body>
<script>addEventListener("message", event => { document.body.dataset.found = event.data; });</script>
<iframe src="probe.html" width="WIDTH" height="3000" style="border: 0"></iframe>"""


def look(page: Path, *, width: int, dark: bool = False) -> dict[str, Any]:
    """What the browser says of a page: in a frame, since a window cannot be as narrow as a phone."""
    source = page.read_text()
    looking = source.replace("<title>", LISTEN + "<title>", 1).replace("</body>", LOOK + "</body>", 1)
    page.with_name("probe.html").write_text(looking)
    frame = page.with_name("frame.html")
    frame.write_text(FRAME.replace("WIDTH", str(width)))
    profile = page.parent / f"profile-{width}-{dark}"
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    command = [
        str(CHROMIUM), *QUIET, f"--user-data-dir={profile}", scheme, "--window-size=1300,3000",
        "--virtual-time-budget=10000", "--dump-dom", f"file://{frame}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    found = re.search(r'data-found="([^"]*)"', done.stdout)
    assert found is not None, done.stdout[-2000:]
    return json.loads(unescape(found[1]))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("report")
    run = eventful(str(place / "run"), name="a-name-as-long-as-a-name-can-be-" + "x" * 60)
    out = place / "report.html"
    write_report(run.record, out)
    return out


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reports of two sweeps: a halving one, and a population."""
    place = tmp_path_factory.mktemp("sweeps")
    for name, settings in (("asha", ASHA), ("pbt", PBT)):
        sweep = recorded(place, name, settings, faults=faults)
        folder = place / name
        folder.mkdir()
        write_sweep_report(read_results(sweep.record), folder / "report.html")
    return place


@pytest.mark.parametrize("width", [1200, 390])
def test_every_part_is_on_the_screen_and_answers(page: Path, width: int) -> None:
    found = look(page, width=width)
    assert found["problems"] == []
    assert found["ready"] == "yes"
    assert found["window"] == width
    assert (found["page"], found["wide"]) == (width, [])
    assert re.match(r"step 7,[45]\d\d–7,5\d\d: training \d\.\d+ \(\d", found["read"]["figure-loss"])
    assert " · step 6,400: validation " in found["read"]["figure-accuracy"]
    assert len(found["read"]) == 7
    assert (found["linear"], found["log"]) == ([False, True], [True, False])
    assert found["key"].startswith("step ")


def test_it_is_dark_where_the_reader_wants_that(page: Path) -> None:
    assert look(page, width=1200)["back"] == "rgb(255, 255, 255)"
    assert look(page, width=1200, dark=True)["back"] == "rgb(17, 22, 29)"


@pytest.mark.parametrize("width", [1200, 390])
def test_a_sweeps_trials_are_marked_everywhere_and_sorted(sweeps: Path, width: int) -> None:
    found = look(sweeps / "asha" / "report.html", width=width)
    assert found["problems"] == []
    assert found["ready"] == "yes"
    assert (found["page"], found["wide"]) == (width, [])
    assert sorted(found["read"]) == [
        f"figure-{name}" for name in ("best-by-hours", "best-by-trial", "parallel", "values")
    ]
    assert re.match(r"t00\d\d · \w+ · accuracy 0\.\d+ · \d00 rows · optim\.lr ", found["read"]["figure-values"])
    assert " · diverged · no value · 100 rows · optim.lr " in found["read"]["figure-parallel"]
    assert found["key"].startswith("t0000 · ")
    assert {"figure-values", "figure-best-by-trial", "figure-parallel", "trials-table"} <= set(found["marked"])
    up, down, by_value = found["order"]
    assert up == sorted(up) == down[::-1]
    assert sorted(by_value) == up != by_value


def test_a_population_is_drawn(sweeps: Path) -> None:
    found = look(sweeps / "pbt" / "report.html", width=1200)
    assert (found["problems"], found["ready"], found["wide"]) == ([], "yes", [])
    assert re.match(r"t000\d · completed · ", found["read"]["figure-lineage"])
    assert {"figure-course-optim.lr", "figure-course-train.global_batch"} <= set(found["read"])
