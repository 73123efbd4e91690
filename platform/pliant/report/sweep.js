// Which trial a line is: marked in all figures and in the table. Sorting, copying, switching a y axis.
// Everything else is there without a script.
"use strict";
const told = JSON.parse(document.getElementById("told").textContent);
const figures = [...document.querySelectorAll("figure")];
const NEAR_PX = 24;
let kept = null, marked = null;

const mark = trial => {
  if (trial === marked) return;
  for (const element of document.querySelectorAll(".on")) element.classList.remove("on");
  document.body.classList.toggle("marking", trial !== null);
  if (trial !== null) for (const element of document.querySelectorAll(`[data-t="${trial}"]`)) element.classList.add("on");
  marked = trial;
};
const keep = trial => {
  kept = kept === trial ? null : trial;
  mark(kept);
};

// The straight pieces of a path, in units of the drawing.
const pieces = path => {
  const found = [];
  let x = 0, y = 0;
  for (const [, command, rest] of path.getAttribute("d").matchAll(/([MLHVh])([^MLHVh]*)/g)) {
    const [a, b] = rest.trim().split(" ").map(Number), from = [x, y];
    if (command === "H") x = a; else if (command === "V") y = a; else if (command !== "h") [x, y] = [a, b];
    if (command !== "M") found.push([...from, x, y]);
  }
  return found;
};
const distance = (px, py, [ax, ay, bx, by]) => {
  const dx = bx - ax, dy = by - ay, length = dx * dx + dy * dy;
  const t = length ? Math.min(Math.max(((px - ax) * dx + (py - ay) * dy) / length, 0), 1) : 0;
  return Math.hypot(px - ax - t * dx, py - ay - t * dy);
};

for (const figure of figures) {
  const plot = figure.querySelector(".plot"), read = figure.querySelector(".read"), notes = read.textContent;
  const scales = [...figure.querySelectorAll(".scale")], lines = new Map();
  const shown = () => scales.find(scale => !scale.hidden);
  const linesOf = scale => {
    if (!lines.has(scale)) {
      const paths = [...scale.querySelectorAll("path[data-t]")];
      lines.set(scale, paths.map(path => ({ trial: Number(path.dataset.t), pieces: pieces(path) })));
    }
    return lines.get(scale);
  };
  const say = trial => {
    read.textContent = trial === null ? notes : told[trial];
    read.classList.toggle("reading", trial !== null);
  };
  const nearest = event => {
    const drawing = shown().querySelector("svg"), box = drawing.getBoundingClientRect(), view = drawing.viewBox.baseVal;
    const sx = box.width / view.width, sy = box.height / view.height;
    const px = event.clientX - box.left, py = event.clientY - box.top;
    let best = null, least = NEAR_PX;
    for (const line of linesOf(shown()))
      for (const [ax, ay, bx, by] of line.pieces) {
        const away = distance(px, py, [ax * sx, ay * sy, bx * sx, by * sy]);
        if (away <= least) [least, best] = [away, line.trial];
      }
    return best;
  };
  const look = trial => {
    mark(trial === null ? kept : trial);
    say(trial === null ? kept : trial);
  };
  plot.addEventListener("pointermove", event => look(nearest(event)));
  plot.addEventListener("pointerleave", () => {
    mark(kept);
    say(null);
  });
  plot.addEventListener("click", event => keep(nearest(event)));
  plot.addEventListener("blur", () => say(null));
  plot.addEventListener("keydown", event => {
    const way = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    if (!way) return;
    event.preventDefault();
    const trials = [...new Set(linesOf(shown()).map(line => line.trial))].sort((a, b) => a - b);
    const at = trials.indexOf(kept);
    kept = trials[at < 0 ? 0 : Math.min(Math.max(at + way, 0), trials.length - 1)] ?? null;
    look(kept);
  });

  const buttons = [...figure.querySelectorAll(".scales button")];
  buttons.forEach((button, chosen) =>
    button.addEventListener("click", () =>
      buttons.forEach((other, i) => {
        other.setAttribute("aria-pressed", String(i === chosen));
        scales[i].hidden = i !== chosen;
      }),
    ),
  );
}

const table = document.getElementById("trials-table");
if (table) {
  const body = table.tBodies[0], rows = [...body.rows];
  for (const row of rows) row.addEventListener("click", () => keep(Number(row.dataset.t)));
  const value = (row, column) => {
    const text = row.cells[column].textContent, number = Number(text.replaceAll(",", ""));
    return text.trim() === "" || text === "–" ? null : Number.isNaN(number) ? text : number;
  };
  const compare = (a, b) => (typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1);
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const sort = () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const keys = new Map(rows.map(row => [row, value(row, column)]));
      rows.sort((one, two) => {
        const a = keys.get(one), b = keys.get(two);
        if (a === null || b === null) return (a === null) - (b === null); // what is not there comes last
        return down ? compare(b, a) : compare(a, b);
      });
      body.append(...rows);
    };
    head.tabIndex = 0;
    head.addEventListener("click", sort);
    head.addEventListener("keydown", event => event.key === "Enter" && sort());
  });
}

for (const button of document.querySelectorAll("[data-copy]"))
  button.addEventListener("click", () => {
    getSelection().selectAllChildren(button.nextElementSibling);
    button.textContent = document.execCommand("copy") ? "copied" : "selected";
  });
document.documentElement.dataset.ready = "yes";
