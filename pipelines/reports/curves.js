// Curves that zoom: drawn anew from the data in the page, so that labels follow.
const MARKS = {
  o: "M-3,0a3,3 0 1,0 6,0a3,3 0 1,0 -6,0z", s: "M-3,-3h6v6h-6z", D: "M0,-4l4,4l-4,4l-4,-4z",
  "^": "M0,-4l4,7h-8z", v: "M0,4l4,-7h-8z", P: "M-4,0h8M0,-4v8", X: "M-3,-3l6,6M-3,3l6,-6",
};

function written(value) {
  const size = Math.abs(value);
  if (size === 0 || (size >= 1e-3 && size < 1e4)) return String(Number(value.toPrecision(4)));
  const [factor, power] = value.toExponential(2).split("e");
  const raised = [...String(Number(power))].map((c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]);
  const short = String(Number(factor));
  return `${short === "1" ? "" : `${short}·`}10${raised.join("")}`;
}

// Values with labels in an interval of values, a logarithmic one by powers where it spans many.
function ticks(low, high, log, whole) {
  if (log && high / low > 8) {
    const powers = [];
    for (let k = Math.floor(Math.log10(low)); k <= Math.ceil(Math.log10(high)); k += 1) {
      for (const m of high / low > 1e3 ? [1] : [1, 2, 5]) powers.push(m * 10 ** k);
    }
    return powers.filter((v) => v >= low && v <= high);
  }
  const rough = (high - low) / 5;
  const size = 10 ** Math.floor(Math.log10(rough));
  let step = size * [1, 2, 5, 10].find((m) => m * size >= rough * 0.999);
  if (whole) step = Math.max(1, Math.round(step));
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k += 1) {
    found.push(Number((k * step).toPrecision(12)));
  }
  return found;
}

class Axis {
  constructor(values, log, whole, rim) {
    [this.log, this.whole] = [log, whole];
    const ends = values.filter((v) => !log || v > 0).map((v) => this.to(v));
    const [low, high] = [Math.min(...ends), Math.max(...ends)];
    const more = rim * (high - low || 1);
    this.all = [low - more, high + more];
    this.reset();
  }
  to(value) { return this.log ? Math.log10(value) : value; }
  from(place) { return this.log ? 10 ** place : place; }
  reset() { [this.low, this.high] = this.all; }
  zoom(from, to) { // within all: far outside, powers of ten overflow
    const [low, high] = [Math.max(from, this.all[0]), Math.min(to, this.all[1])];
    if (high - low > 1e-6 * (this.all[1] - this.all[0])) [this.low, this.high] = [low, high];
  }
  by(factor, middle) {
    this.zoom(middle - (middle - this.low) * factor, middle + (this.high - middle) * factor);
  }
  share(value) { return (this.to(value) - this.low) / (this.high - this.low); }
  at(share) { return this.low + share * (this.high - this.low); }
  get ticks() { return ticks(this.from(this.low), this.from(this.high), this.log, this.whole); }
}

class Plot {
  constructor(place) {
    this.data = JSON.parse(place.querySelector("script").textContent);
    const { lines, xlog, ylog, whole } = this.data;
    const left = lines.filter((one) => !one.right);
    this.x = new Axis(lines.flatMap((one) => one.x), xlog, whole, 0.02);
    this.y = new Axis(left.flatMap((one) => [...one.y, ...one.low, ...one.high]), ylog, false, 0.05);
    const right = lines.filter((one) => one.right).flatMap((one) => one.y);
    this.right = right.length ? new Axis([0, ...right], false, false, 0) : null;
    if (this.right) this.right.high *= 1.08;
    this.current = { line: 0, point: lines[0].x.length - 1 };
    this.legend(add(place, "ul", { class: "legend" }));
    const label = place.dataset.label;
    const keys = "arrow keys go from point to point, plus and minus zoom, Escape shows all";
    this.box = add(place, "div", { class: "plot", tabindex: 0, role: "group",
      "aria-label": `${label} Curves that zoom: ${keys}.` });
    this.svg = add(this.box, "svg", { "aria-hidden": "true" });
    const row = add(place, "p", { class: "controls" });
    for (const [word, act] of [["Zoom in", () => this.by(0.5)], ["Zoom out", () => this.by(2)],
      ["Show all", () => this.reset()]]) {
      add(row, "button", { type: "button" }, word).addEventListener("click", act);
    }
    this.said = add(row, "output", {}, "Drag a rectangle to zoom; double-click shows all.");
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.box);
  }

  legend(list) {
    for (const one of this.data.lines) {
      const item = add(list, "li");
      const swatch = add(item, "svg", { width: 30, height: 12, "aria-hidden": "true" });
      const [stroke, dash] = [one.ink, one.dashes];
      add(swatch, "path", { d: "M0,6H30", stroke, "stroke-dasharray": dash, "stroke-width": 1.6 });
      if (one.marker) this.mark(add(swatch, "g", { transform: "translate(15,6)" }), one);
      add(item, "span", {}, one.name);
    }
  }

  mark(group, one) {
    add(group, "path", { d: MARKS[one.marker], fill: one.ink, stroke: one.ink });
  }

  by(factor) {
    const line = this.data.lines[this.current.line];
    const inside = (v, axis) => axis.share(v) >= 0 && axis.share(v) <= 1;
    const [x, y] = [line.x[this.current.point], line.y[this.current.point]];
    const here = this.chosen && !line.right && inside(x, this.x) && inside(y, this.y);
    this.x.by(factor, here ? this.x.to(x) : this.x.at(0.5));
    this.y.by(factor, here ? this.y.to(y) : this.y.at(0.5));
    this.draw();
  }

  reset() { this.x.reset(); this.y.reset(); this.draw(); }

  place(line, k) {
    const y = line.right ? this.right : this.y;
    return [this.x.share(line.x[k]) * this.w, (1 - y.share(line.y[k])) * this.h];
  }

  draw() {
    const width = Math.max(260, this.box.clientWidth);
    const height = Math.round(Math.min(380, Math.max(250, 0.42 * width)));
    const [left, bottom, top, end] = [66, 44, 8, this.right ? 62 : 12];
    [this.w, this.h, this.left, this.top] = [width - left - end, height - top - bottom, left, top];
    const svg = this.svg;
    svg.replaceChildren();
    for (const [key, v] of [["width", width], ["height", height]]) svg.setAttribute(key, v);
    const all = add(svg, "g", { transform: `translate(${left},${top})` });
    for (const value of this.x.ticks) {
      const x = this.x.share(value) * this.w;
      add(all, "path", { class: "grid", d: `M${x},0V${this.h}` });
      add(all, "text", { class: "x", x, y: this.h + 17 }, written(value));
    }
    for (const value of this.y.ticks) {
      const y = (1 - this.y.share(value)) * this.h;
      add(all, "path", { class: "grid", d: `M0,${y}H${this.w}` });
      add(all, "text", { class: "y", x: -7, y: y + 4 }, written(value));
    }
    for (const value of this.right ? this.right.ticks : []) {
      const y = (1 - this.right.share(value)) * this.h;
      add(all, "text", { class: "right", x: this.w + 7, y: y + 4 }, written(value));
    }
    add(all, "path", { class: "axis", d: `M0,0V${this.h}H${this.w}` });
    add(all, "text", { class: "x", x: this.w / 2, y: this.h + 38 }, this.data.xlabel);
    const turned = (x) => `translate(${x},${this.h / 2}) rotate(-90)`;
    add(all, "text", { class: "x", transform: turned(-52) }, this.data.ylabel);
    const beside = { class: "x", transform: turned(this.w + 56) };
    if (this.right) add(all, "text", beside, this.data.right);
    const inner = add(all, "svg", { width: this.w, height: this.h });
    for (const line of this.data.lines) this.curve(inner, line);
    this.spot = add(inner, "circle", { r: 6, class: "spot", cx: -99, cy: -99 });
    this.band = add(inner, "rect", { class: "band", width: 0, height: 0 });
    if (this.chosen) this.show();
  }

  curve(inner, line) {
    const points = line.x.map((_, k) => this.place(line, k));
    const path = (of) => of.map((p) => p.map((v) => v.toFixed(1)).join(",")).join("L");
    if (line.low.length) {
      const edge = (v) => v.map((_, k) => this.place({ ...line, y: v }, k));
      const around = [...edge(line.low), ...edge(line.high).reverse()];
      add(inner, "path", { d: `M${path(around)}Z`, fill: line.ink, opacity: 0.18 });
    }
    add(inner, "path", { d: `M${path(points)}`, fill: "none", stroke: line.ink,
      "stroke-width": line.right ? 1 : 1.6, "stroke-dasharray": line.dashes });
    const seen = points.filter(([x]) => x >= 0 && x <= this.w);
    if (!line.marker || seen.length > 40) return;
    for (const [x, y] of seen) this.mark(add(inner, "g", { transform: `translate(${x},${y})` }), line);
  }

  show() {
    const { line, point } = this.current;
    const one = this.data.lines[line];
    const [x, y] = this.place(one, point);
    this.spot.setAttribute("cx", x);
    this.spot.setAttribute("cy", y);
    const { xlabel } = this.data;
    this.said.textContent = `${one.name}: ${written(one.y[point])} at ${xlabel} ${written(one.x[point])}`;
  }

  choose(line, point) {
    const count = this.data.lines.length;
    const at = (line + count) % count;
    const last = this.data.lines[at].x.length - 1;
    this.current = { line: at, point: Math.min(last, Math.max(0, point)) };
    this.chosen = true;
    this.show();
  }

  listen() {
    let start = null;
    const here = (event) => {
      const { left, top } = this.svg.getBoundingClientRect();
      return [event.clientX - left - this.left, event.clientY - top - this.top];
    };
    const rectangle = (a, b) => [0, 1].map((k) => {
      const most = [this.w, this.h][k];
      const ends = [a[k], b[k]].sort((p, q) => p - q).map((v) => Math.min(most, Math.max(0, v)));
      return ends[1] - ends[0] < 8 ? [0, most] : ends; // a flat one zooms in one direction
    });
    this.svg.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      start = here(event);
      this.svg.setPointerCapture(event.pointerId);
    });
    this.svg.addEventListener("pointermove", (event) => {
      const at = here(event);
      if (!start) { this.nearest(at); return; }
      const [[x, x1], [y, y1]] = rectangle(start, at);
      const size = { x, y, width: x1 - x, height: y1 - y };
      for (const [key, v] of Object.entries(size)) this.band.setAttribute(key, v);
    });
    this.svg.addEventListener("pointerup", (event) => {
      const [from, to] = [start, here(event)];
      start = null;
      if (!from || Math.hypot(from[0] - to[0], from[1] - to[1]) < 8) return;
      const [[x, x1], [y, y1]] = rectangle(from, to);
      this.x.zoom(this.x.at(x / this.w), this.x.at(x1 / this.w));
      this.y.zoom(this.y.at(1 - y1 / this.h), this.y.at(1 - y / this.h));
      this.draw();
    });
    this.svg.addEventListener("pointercancel", () => { start = null; this.draw(); });
    this.svg.addEventListener("dblclick", () => this.reset());
    this.box.addEventListener("keydown", (event) => {
      const { line, point } = this.current;
      const act = {
        ArrowRight: () => this.choose(line, point + 1), ArrowLeft: () => this.choose(line, point - 1),
        ArrowDown: () => this.choose(line + 1, point), ArrowUp: () => this.choose(line - 1, point),
        "+": () => this.by(0.5), "-": () => this.by(2), Escape: () => this.reset(),
      }[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    });
  }

  nearest(at) {
    let [best, found] = [30, null];
    this.data.lines.forEach((line, k) => line.x.forEach((_, j) => {
      const [x, y] = this.place(line, j);
      const far = Math.hypot(x - at[0], y - at[1]);
      if (far < best) [best, found] = [far, [k, j]];
    }));
    if (found) this.choose(...found);
  }
}
