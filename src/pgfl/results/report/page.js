"use strict";
// Line charts with values under the cursor, zoom and a legend to click. All text goes in as textContent.
// The zoom is a range of rounds that all charts share.
const SVG = "http://www.w3.org/2000/svg";
const W = 520, H = 300, LEFT = 54, RIGHT = 12, TOP = 12, BOTTOM = 36;

function node(parent, tag, attributes = {}, text = "") {
  const inSvg = tag !== "svg" ? parent.namespaceURI === SVG : true;
  const made = inSvg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== "") made.textContent = text;
  return parent.appendChild(made);
}

function ticks(low, high, wanted = 6) {
  const rough = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const found = [];
  for (let at = Math.ceil(low / step); at * step <= high + step * 1e-9; at++) found.push(+(at * step).toPrecision(12));
  return found;
}

function range(panel, shown, kept) {
  const lists = panel.curves.flatMap((curve, i) => (shown[i] ? [curve.y, curve.low ?? [], curve.high ?? []] : []));
  const finite = lists.flatMap((list) => kept.map((i) => list[i] ?? null)).filter((value) => value !== null);
  let low = Math.min(...finite), high = Math.max(...finite);
  if (!finite.length) [low, high] = [0, 1];
  const pad = (high - low) * 0.04 || Math.abs(high) * 0.05 || 1;
  return [low - pad, high + pad];
}

function line(x, y, values, xs, kept) {
  let path = "", pen = false;
  for (const i of kept) {
    if (values[i] === null) { pen = false; continue; }
    path += `${pen ? "L" : "M"}${x(xs[i]).toFixed(1)} ${y(values[i]).toFixed(1)}`;
    pen = true;
  }
  return path;
}

function band(x, y, curve, xs, within) {
  const kept = within.filter((i) => curve.low[i] !== null && curve.high[i] !== null);
  const up = kept.map((i) => `${x(xs[i]).toFixed(1)} ${y(curve.high[i]).toFixed(1)}`);
  const down = kept.reverse().map((i) => `${x(xs[i]).toFixed(1)} ${y(curve.low[i]).toFixed(1)}`);
  return up.length ? `M${up.join("L")}L${down.join("L")}Z` : "";
}

const charts = [];
let view = null;

function zoom(first, last) {
  view = first === null ? null : [first, last];
  for (const one of charts) one.draw();
}

function chart(parent, panel) {
  const box = node(parent, "div", { class: "chart" });
  node(box, "h2", {}, panel.title + (panel.unit ? `, ${panel.unit}` : ""));
  const back = node(box, "button", { class: "reset", type: "button", hidden: "" }, "Show all rounds");
  back.addEventListener("click", () => zoom(null));
  const frame = node(box, "div", { class: "frame", tabindex: "0", role: "group", "aria-label": `${panel.title}: arrow keys show values, + and − zoom, 0 shows all rounds` });
  const svg = node(frame, "svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": panel.title });
  const drawing = node(svg, "g"), selection = node(svg, "rect", { class: "selection", y: TOP, height: H - TOP - BOTTOM });
  const cursor = node(svg, "line", { class: "cursor", y1: TOP, y2: H - BOTTOM });
  const tip = node(frame, "div", { class: "tip", "aria-live": "polite" });
  if (panel.note) node(box, "p", { class: "soft" }, panel.note);
  const shown = panel.curves.map(() => true);
  const whole = [panel.x[0], panel.x[panel.x.length - 1]];
  let pressed = null, pointed = null;

  const limits = () => view ?? whole;
  const x = (value) => LEFT + ((value - limits()[0]) / (limits()[1] - limits()[0] || 1)) * (W - LEFT - RIGHT);
  const inView = () => panel.x.map((_, i) => i).filter((i) => panel.x[i] >= limits()[0] && panel.x[i] <= limits()[1]);

  function roundAt(event) {
    const bounds = svg.getBoundingClientRect();
    const at = ((event.clientX - bounds.left) / bounds.width) * W;
    const share = Math.min(Math.max((at - LEFT) / (W - LEFT - RIGHT), 0), 1);
    return limits()[0] + share * (limits()[1] - limits()[0]);
  }

  function nearest(round) {
    return inView().reduce((best, i) => (best === null || Math.abs(panel.x[i] - round) < Math.abs(panel.x[best] - round) ? i : best), null);
  }

  function point(i) {
    pointed = i;
    cursor.style.visibility = tip.style.visibility = i === null ? "hidden" : "visible";
    if (i === null) return;
    const at = x(panel.x[i]), onRight = at > W / 2;
    cursor.setAttribute("x1", at);
    cursor.setAttribute("x2", at);
    tip.replaceChildren();
    node(tip, "b", {}, `round ${panel.x[i]}`);
    panel.curves.forEach((curve, j) => {
      if (!shown[j] || curve.y[i] === null) return;
      const row = node(tip, "div");
      const key = node(row, "span", { class: "key" });
      node(key, "i", { style: `background:${curve.colour}` });
      node(key, "span", {}, curve.name);
      const spread = curve.low && curve.low[i] !== null ? ` (${curve.low[i].toPrecision(4)} to ${curve.high[i].toPrecision(4)})` : "";
      node(row, "span", {}, `${curve.y[i].toPrecision(4)} ${panel.unit}${spread}`);
    });
    tip.style.left = onRight ? "" : `${(at / W) * 100 + 2}%`;
    tip.style.right = onRight ? `${100 - (at / W) * 100 + 2}%` : "";
  }

  function draw() {
    drawing.replaceChildren();
    const kept = inView(), [first, last] = limits(), [low, high] = range(panel, shown, kept);
    const y = (value) => TOP + ((high - value) / (high - low)) * (H - TOP - BOTTOM);
    for (const value of ticks(low, high)) {
      node(drawing, "line", { class: "grid", x1: LEFT, x2: W - RIGHT, y1: y(value), y2: y(value) });
      node(drawing, "text", { x: LEFT - 7, y: y(value) + 4, "text-anchor": "end" }, String(value));
    }
    for (const value of ticks(first, last > first ? last : first + 1).filter(Number.isInteger)) {
      node(drawing, "text", { x: x(value), y: H - BOTTOM + 17, "text-anchor": "middle" }, String(value));
    }
    node(drawing, "text", { x: W - RIGHT, y: H - 3, "text-anchor": "end" }, "round");
    panel.curves.forEach((curve, i) => {
      if (!shown[i]) return;
      if (curve.low) node(drawing, "path", { class: "band", d: band(x, y, curve, panel.x, kept), style: `fill:${curve.colour}` });
      node(drawing, "path", { d: line(x, y, curve.y, panel.x, kept), style: `stroke:${curve.colour}` });
    });
    back.hidden = view === null;
    point(pointed !== null && kept.includes(pointed) ? pointed : null);
  }

  function select(from, to) {
    const a = x(Math.min(from, to)), b = x(Math.max(from, to));
    selection.setAttribute("x", a);
    selection.setAttribute("width", b - a);
  }

  function zoomTo(from, to) {
    const kept = panel.x.filter((value) => value >= Math.min(from, to) && value <= Math.max(from, to));
    if (kept.length > 1) zoom(kept[0], kept[kept.length - 1]);
  }

  svg.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    pressed = roundAt(event);
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", (event) => {
    point(nearest(roundAt(event)));
    if (pressed !== null) select(pressed, roundAt(event));
  });
  svg.addEventListener("pointerup", (event) => {
    const from = pressed, to = roundAt(event);
    pressed = null;
    select(0, 0);
    if (from !== null && Math.abs(x(to) - x(from)) > 6) zoomTo(from, to);
  });
  svg.addEventListener("pointercancel", () => { pressed = null; select(0, 0); });
  svg.addEventListener("pointerleave", () => { if (pressed === null) point(null); });
  svg.addEventListener("dblclick", () => zoom(null));
  frame.addEventListener("blur", () => point(null));
  frame.addEventListener("keydown", (event) => {
    const kept = inView(), at = kept.indexOf(pointed), [first, last] = limits();
    const around = panel.x[pointed ?? kept[kept.length - 1]], reach = (last - first) / 4;
    const keys = {
      ArrowLeft: () => point(kept[at < 0 ? kept.length - 1 : Math.max(at - 1, 0)]),
      ArrowRight: () => point(kept[at < 0 ? 0 : Math.min(at + 1, kept.length - 1)]),
      "+": () => zoomTo(Math.max(around - reach, first), Math.min(around + reach, last)),
      "-": () => zoomTo(Math.max(first - 2 * reach, whole[0]), Math.min(last + 2 * reach, whole[1])),
      0: () => zoom(null),
      Escape: () => zoom(null),
    };
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    keys[event.key]();
    event.preventDefault();
  });

  if (panel.named) {
    const legend = node(box, "div", { class: "legend" });
    panel.curves.forEach((curve, i) => {
      const button = node(legend, "button", { class: "key", type: "button", "aria-pressed": "true" });
      node(button, "i", { style: `background:${curve.colour}` });
      node(button, "span", {}, curve.name);
      button.addEventListener("click", () => {
        shown[i] = !shown[i];
        button.setAttribute("aria-pressed", String(shown[i]));
        draw();
      });
    });
  }
  charts.push({ draw });
  draw();
}

const place = document.getElementById("charts");
for (const panel of JSON.parse(document.getElementById("panels").textContent)) chart(place, panel);
if (charts.length) node(place, "p", { class: "soft hint" }, "Point at a curve to read its values; drag across rounds to zoom in, double-click to zoom out.");
