// Reading values off a figure, and switching its y axis. Everything else is there without a script.
"use strict";
for (const figure of document.querySelectorAll("figure")) {
  const plot = figure.querySelector(".plot"), cross = figure.querySelector(".cross"), read = figure.querySelector(".read");
  const data = JSON.parse(figure.querySelector("script").textContent);
  const [from, to] = data.span, notes = read.textContent;
  let step = null;

  const number = value => (value === null ? "not finite" : String(Number(value.toPrecision(5))));
  const closest = curve => {
    let low = 0, high = curve.first.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (curve.last[middle] < step) low = middle + 1; else high = middle;
    }
    return low > 0 && step - curve.last[low - 1] < curve.first[low] - step ? low - 1 : low;
  };
  const show = () => {
    const texts = data.curves.filter(curve => curve.first.length).map(curve => {
      const i = closest(curve), several = curve.first[i] !== curve.last[i];
      const steps = curve.first[i].toLocaleString("en") + (several ? "–" + curve.last[i].toLocaleString("en") : "");
      const spread = several && curve.low[i] !== null ? ` (${number(curve.low[i])} to ${number(curve.high[i])})` : "";
      return `step ${steps}: ${curve.label} ${number(curve.mean[i])}${spread}${curve.bad[i] ? ", not all finite" : ""}`;
    });
    read.textContent = texts.join(" · ");
    read.classList.add("reading");
    cross.style.left = `${(100 * (step - from)) / (to - from)}%`;
    cross.hidden = false;
  };
  const clear = () => {
    cross.hidden = true;
    read.classList.remove("reading");
    read.textContent = notes;
  };

  plot.addEventListener("pointermove", event => {
    const box = plot.getBoundingClientRect();
    step = from + ((to - from) * Math.min(Math.max(event.clientX - box.left, 0), box.width)) / box.width;
    show();
  });
  plot.addEventListener("pointerleave", clear);
  plot.addEventListener("blur", clear);
  plot.addEventListener("keydown", event => {
    const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!way) return;
    event.preventDefault();
    const curve = data.curves[0], i = step === null ? 0 : closest(curve) + way;
    step = curve.first[Math.min(Math.max(i, 0), curve.first.length - 1)];
    show();
  });

  const buttons = [...figure.querySelectorAll(".scales button")], scales = figure.querySelectorAll(".scale");
  buttons.forEach((button, chosen) =>
    button.addEventListener("click", () =>
      buttons.forEach((other, i) => {
        other.setAttribute("aria-pressed", String(i === chosen));
        scales[i].hidden = i !== chosen;
      }),
    ),
  );
}
document.documentElement.dataset.ready = "yes";
