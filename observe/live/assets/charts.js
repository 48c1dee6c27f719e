// Charts and their twins in text. Everything that is shown is a text node or a number: nothing is read as HTML.

export const kinds = ["allowed", "refused", "degraded", "undecided"]; // as the server sends them
export const columns = ["Allowed/s", "Refused/s", "Degraded/s", "Undecided/s"];

// el makes an element. Attributes are names and texts; children are nodes and texts.
export function el(name, attributes = {}, ...children) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  e.append(...children);
  return e;
}

// text sets a text where it differs, so that nothing is laid out again that stays as it is.
export function text(e, s) {
  if (e.textContent !== s) e.textContent = s;
}

export function number(x) {
  if (x === 0) return "0";
  if (x >= 100000) return Math.round(x / 1000).toLocaleString("en") + "k";
  if (x >= 100) return Math.round(x).toLocaleString("en");
  return String(Math.round(x * 10) / 10);
}

export function clockTime(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB");
}

let palette;
export function colours() {
  if (!palette) {
    const style = getComputedStyle(document.documentElement);
    palette = {};
    for (const name of ["allowed", "refused", "degraded", "undecided", "line", "soft", "link"]) palette[name] = style.getPropertyValue("--" + name).trim();
  }
  return palette;
}

// onScheme calls f when colours change.
export function onScheme(f) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    palette = undefined;
    f();
  });
}

// spark draws the last minute as bars: refused at the bottom, and on top of it what was degraded, undecided and allowed.
export function spark(canvas, times, history, now) {
  const scale = devicePixelRatio || 1;
  const w = Math.round(canvas.clientWidth * scale), h = Math.round(canvas.clientHeight * scale);
  if (!w || !h) return;
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  const c = canvas.getContext("2d"), colour = colours();
  c.clearRect(0, 0, w, h);
  c.fillStyle = colour.line;
  c.fillRect(0, h - scale, w, scale);
  if (!history) return;
  let most = 1;
  const first = Math.max(0, times.length - 60);
  for (let k = first; k < times.length; k++) most = Math.max(most, kinds.reduce((sum, _, i) => sum + history[i][k], 0));
  const bar = w / 60;
  for (let k = first; k < times.length; k++) {
    const x = w - (now - times[k] + 1) * bar;
    if (x < 0) continue;
    let y = h;
    for (const kind of [1, 2, 3, 0]) {
      const high = history[kind][k] / most * (h - scale);
      if (!high) continue;
      c.fillStyle = colour[kinds[kind]];
      c.fillRect(x, y - high, Math.max(bar - 0.5, scale), high);
      y -= high;
    }
  }
}

function axes(unit) {
  const colour = colours();
  const look = { stroke: colour.soft, grid: { stroke: colour.line, width: 1 }, ticks: { stroke: colour.line, width: 1, size: 4 }, font: "11px system-ui, sans-serif" };
  return [
    { ...look, values: (u, at) => at.map((t) => clockTime(t).slice(0, u.scales.x.max - u.scales.x.min > 240 ? 5 : 8)), space: 70, size: 28, incrs: [1, 2, 5, 10, 15, 30, 60, 120, 300, 600] },
    { ...look, values: (u, at) => at.map((v) => v >= 1000 ? v / 1000 + "k" : String(Math.round(v * 1000) / 1000)), size: 48, space: 28, label: unit },
  ];
}

// Chart is a uPlot of series that all have the same times. With stacked, each is drawn on top of those before.
export class Chart {
  constructor(box, names, stacked, name) {
    this.box = box;
    this.names = names;
    this.stacked = stacked;
    this.name = name;
    this.watch = new ResizeObserver(() => this.resize());
    this.watch.observe(box);
    this.make();
  }

  make() {
    if (this.plot) this.plot.destroy();
    const colour = colours();
    const paint = { allowed: colour.allowed, refused: colour.refused, degraded: colour.degraded, undecided: colour.undecided, p50: colour.link, p99: colour.refused };
    const series = this.order().map((k) => ({
      label: this.names[k], stroke: paint[this.names[k]], width: this.stacked ? 1 : 2, dash: this.names[k] === "p50" ? [5, 4] : undefined,
      fill: this.stacked ? paint[this.names[k]] : undefined, points: { show: false }, spanGaps: true,
      value: (u, v, s, i) => i == null || !this.raw ? "–" : number(this.raw[k][i] ?? 0),
    }));
    this.plot = new uPlot({
      width: Math.max(this.box.clientWidth, 100), height: 150, series: [{ value: (u, v) => v == null ? "–" : clockTime(v) }, ...series], axes: axes(),
      scales: { x: { time: true, range: (u, low, high) => [Math.min(low, high - 60), high] }, y: { range: (u, low, high) => [0, Math.max(1, high) * 1.05] } },
      cursor: { drag: { x: false, y: false }, y: false, points: { show: false } }, hooks: { setCursor: [() => this.tell()] }, padding: [6, 8, 0, 0],
    }, this.data(), this.box);
    const canvas = this.box.querySelector("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", this.name + ": a chart of the last 15 minutes. The same is there as a table.");
  }

  // order is that of drawing: the highest stack first, as each covers the one before.
  order() {
    return this.stacked ? [0, 3, 2, 1] : this.names.map((_, k) => k);
  }

  data() {
    if (!this.times) return [[], ...this.names.map(() => [])];
    if (!this.stacked) return [this.times, ...this.raw];
    const order = this.order(); // each with all that are drawn after it
    return [this.times, ...order.map((_, at) => this.times.map((_, k) => order.slice(at).reduce((sum, i) => sum + this.raw[i][k], 0)))];
  }

  show(times, raw) {
    this.times = times;
    this.raw = raw;
    this.plot.setData(this.data());
    this.tell();
  }

  // tell shows the newest numbers where nobody points at others.
  tell() {
    if (this.times?.length && this.plot.cursor.idx == null) this.plot.setLegend({ idx: this.times.length - 1 });
  }

  resize() {
    const width = this.box.clientWidth;
    if (width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: 150 });
  }

  close() {
    this.watch.disconnect();
    this.plot.destroy();
  }
}

// minutes writes the means, or the most, of each minute into a table, the newest first.
export function minutes(table, names, times, series, most) {
  const now = times[times.length - 1];
  const rows = [];
  for (let m = 0; m < 15; m++) {
    const from = now - 60 * (m + 1), to = now - 60 * m;
    const first = times.findIndex((t) => t > from);
    let last = times.findLastIndex((t) => t <= to);
    if (first < 0 || last < first) break;
    // Points are a second apart, and ten where they are older: each counts for the time until the next one.
    const cells = series.map((s) => {
      let sum = 0, weight = 0, top = 0;
      for (let k = first; k <= last; k++) {
        const w = k + 1 < times.length ? Math.min(Math.max(times[k + 1] - times[k], 0), 60) : 1; // clocks are set, too
        sum += s[k] * w;
        weight += w;
        top = Math.max(top, s[k]);
      }
      return number(most ? top : weight ? sum / weight : 0);
    });
    rows.push(el("tr", {}, el("th", { scope: "row" }, clockTime(to).slice(0, 5)), ...cells.map((c) => el("td", { class: "num" }, c))));
  }
  const head = el("tr", {}, el("th", { scope: "col" }, "Minute to"), ...names.map((n) => el("th", { scope: "col", class: "num" }, n)));
  table.replaceChildren(el("thead", {}, head), el("tbody", {}, ...rows));
}
