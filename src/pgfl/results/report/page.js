"use strict";
// Line charts with a cursor and a legend to click. All text goes in as textContent.
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

function range(panel, shown) {
  const values = panel.curves.flatMap((curve, i) => (shown[i] ? [curve.y, curve.low ?? [], curve.high ?? []].flat() : []));
  const finite = values.filter((value) => value !== null);
  let low = Math.min(...finite), high = Math.max(...finite);
  if (!finite.length) [low, high] = [0, 1];
  const pad = (high - low) * 0.04 || Math.abs(high) * 0.05 || 1;
  return [low - pad, high + pad];
}

function line(x, y, values, xs) {
  let path = "", pen = false;
  values.forEach((value, i) => {
    if (value === null) { pen = false; return; }
    path += `${pen ? "L" : "M"}${x(xs[i]).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = true;
  });
  return path;
}

function band(x, y, curve, xs) {
  const kept = xs.map((_, i) => i).filter((i) => curve.low[i] !== null && curve.high[i] !== null);
  const up = kept.map((i) => `${x(xs[i]).toFixed(1)} ${y(curve.high[i]).toFixed(1)}`);
  const down = kept.reverse().map((i) => `${x(xs[i]).toFixed(1)} ${y(curve.low[i]).toFixed(1)}`);
  return up.length ? `M${up.join("L")}L${down.join("L")}Z` : "";
}

function chart(parent, panel) {
  const box = node(parent, "div", { class: "chart" });
  node(box, "h2", {}, panel.title + (panel.unit ? `, ${panel.unit}` : ""));
  const frame = node(box, "div", { class: "chart" });
  const shown = panel.curves.map(() => true);
  const first = panel.x[0], last = panel.x[panel.x.length - 1];
  const x = (value) => LEFT + ((value - first) / (last - first || 1)) * (W - LEFT - RIGHT);

  function draw() {
    frame.replaceChildren();
    const [low, high] = range(panel, shown);
    const y = (value) => TOP + ((high - value) / (high - low)) * (H - TOP - BOTTOM);
    const svg = node(frame, "svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": panel.title });
    for (const value of ticks(low, high)) {
      node(svg, "line", { class: "grid", x1: LEFT, x2: W - RIGHT, y1: y(value), y2: y(value) });
      node(svg, "text", { x: LEFT - 7, y: y(value) + 4, "text-anchor": "end" }, String(value));
    }
    for (const value of ticks(first, last || 1).filter(Number.isInteger)) {
      node(svg, "text", { x: x(value), y: H - BOTTOM + 17, "text-anchor": "middle" }, String(value));
    }
    node(svg, "text", { x: W - RIGHT, y: H - 3, "text-anchor": "end" }, "round");
    panel.curves.forEach((curve, i) => {
      if (!shown[i]) return;
      if (curve.low) node(svg, "path", { class: "band", d: band(x, y, curve, panel.x), style: `fill:${curve.colour}` });
      node(svg, "path", { d: line(x, y, curve.y, panel.x), style: `stroke:${curve.colour}` });
    });
    const cursor = node(svg, "line", { class: "cursor", y1: TOP, y2: H - BOTTOM });
    const tip = node(frame, "div", { class: "tip" });
    svg.addEventListener("pointermove", (event) => {
      const bounds = svg.getBoundingClientRect();
      const at = ((event.clientX - bounds.left) / bounds.width) * W;
      const round = first + ((at - LEFT) / (W - LEFT - RIGHT)) * (last - first);
      let i = 0;
      panel.x.forEach((value, j) => { if (Math.abs(value - round) < Math.abs(panel.x[i] - round)) i = j; });
      cursor.setAttribute("x1", x(panel.x[i]));
      cursor.setAttribute("x2", x(panel.x[i]));
      tip.replaceChildren();
      node(tip, "b", {}, `round ${panel.x[i]}`);
      panel.curves.forEach((curve, j) => {
        if (!shown[j] || curve.y[i] === null) return;
        const row = node(tip, "div");
        const key = node(row, "span", { class: "key" });
        node(key, "i", { style: `background:${curve.colour}` });
        node(key, "span", {}, curve.name);
        node(row, "span", {}, `${curve.y[i].toPrecision(4)} ${panel.unit}`);
      });
      const left = x(panel.x[i]) > W / 2;
      tip.style.left = left ? "" : `${(x(panel.x[i]) / W) * 100 + 2}%`;
      tip.style.right = left ? `${100 - (x(panel.x[i]) / W) * 100 + 2}%` : "";
      cursor.style.visibility = tip.style.visibility = "visible";
    });
    svg.addEventListener("pointerleave", () => { cursor.style.visibility = tip.style.visibility = "hidden"; });
  }

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
  draw();
}

for (const panel of JSON.parse(document.getElementById("panels").textContent)) chart(document.getElementById("charts"), panel);
