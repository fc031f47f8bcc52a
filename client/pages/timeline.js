// Draw the timeline of a profile: an inference with its slices, which zooms and tells. Times are ns.
"use strict";

const UNITS = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];
function digits(value) {
  const size = Math.abs(value);
  if (size >= 1e7) return value.toExponential(2);
  if (size >= 100 || value === 0) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(3)));
}
function timeText(ns) {
  const [unit, factor] = UNITS.find(one => Math.abs(ns) >= 0.9995 * one[1]) || UNITS[3];
  return digits(ns / factor) + "\u00a0" + unit;
}

class Timeline {
  static HOST = [42, 26];
  static DEVICE = [90, 46];
  static HEIGHT = 158;
  constructor(block) {
    this.data = block;
    this.canvas = make("canvas", "");
    this.facts = make("div", "said");
    this.canvas.tabIndex = 0;
    this.canvas.role = "img";
    this.canvas.ariaLabel =
      "Timeline of an inference; arrow keys go from slice to slice, plus and minus zoom";
    this.facts.ariaLive = "polite";
    this.pointers = new Map();
    this.chosen = this.hovered = null;
    this.painted = false;
    this.place = make("div", "timeline", this.controls(), this.canvas, this.facts);
    if (block.timed) this.place.append(legend(block.groups.slice(0, 9), "Device"));
    this.place.append(legend(block.kinds, "Host"));
    requestAnimationFrame(() => this.colours());
    this.choose(0);
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }
  controls() {
    const select = make("select", "", ...this.data.inferences.map((one, place) => new Option(one.said, place)));
    select.ariaLabel = "Inference to show";
    select.addEventListener("change", () => this.choose(Number(select.value)));
    this.acts = {
      back: () => this.step(-1), on: () => this.step(1), out: () => this.zoom(0.5, this.focus()),
      in: () => this.zoom(2, this.focus()), fit: () => this.fit(),
    };
    const signs = {
      back: ["‹", "previous slice"], on: ["›", "next slice"], out: ["−", "zoom out"], in: ["+", "zoom in"],
      fit: ["Fit", "whole inference"],
    };
    const buttons = Object.entries(signs).map(([act, [sign, hint]]) => button(sign, this.acts[act], "", hint));
    return make("div", "controls", select, make("span", "buttons", ...buttons));
  }
  choose(number) {
    const one = this.one = this.data.inferences[number];
    const kinds = this.data.kinds;
    this.slices = [
      ...one.parts.map(([kind, tensor, begun, took], place) =>
        ({ track: "host", begun, took, place, colour: kinds[kind][0], name: kinds[kind][1], tensor, kind })),
      ...one.launches.map((times, place) => {
        const [begun, took] = times.slice(-2);
        const [name, group] = this.data.operations[this.data.launches[place]];
        return { track: "device", begun, took, place, colour: this.data.groups[group][0], name, times };
      }),
    ];
    this.chosen = this.hovered = null;
    this.fit();
    this.tell();
  }
  fit() { this.show(0, this.one.elapsed || 1); }
  show(from, span) {
    const whole = this.one.elapsed || 1;
    this.span = Math.min(Math.max(span, Math.min(whole, 200)), whole);
    this.from = Math.min(Math.max(from, 0), whole - this.span);
    this.draw();
  }
  zoom(factor, share = 0.5) {
    const at = this.from + share * this.span, span = this.span / factor;
    this.show(at - share * span, span);
  }
  x(ns) { return (ns - this.from) / this.span * this.width; }
  colours() {
    const probe = this.place.appendChild(make("i", ""));
    const colour = name => { probe.className = "key " + name; return getComputedStyle(probe).backgroundColor; };
    this.paint = {};
    for (const [name] of [...this.data.groups, ...this.data.kinds]) this.paint[name] ??= colour(name);
    const root = getComputedStyle(document.documentElement);
    for (const name of ["ink", "soft", "line", "grid"]) this.paint[name] = root.getPropertyValue("--" + name);
    probe.remove();
    this.draw();
  }
  draw() {
    if (this.painted) return;
    this.painted = true;
    requestAnimationFrame(() => { this.painted = false; this.drawNow(); });
  }
  drawNow() {
    const ratio = devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(Timeline.HEIGHT * ratio);
    const pen = this.canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    this.drawAxis(pen);
    for (const [top, height] of [Timeline.HOST, Timeline.DEVICE]) {
      pen.fillStyle = this.paint.grid;
      pen.fillRect(0, top, this.width, height);
    }
    for (const slice of this.slices) this.drawSlice(pen, slice);
    for (const slice of new Set([this.hovered, this.chosen])) if (slice) this.outline(pen, slice);
    pen.fillStyle = this.paint.line;
    pen.fillRect(0, Timeline.HEIGHT - 6, this.width, 4);
    pen.fillStyle = this.paint.soft;
    const whole = this.one.elapsed || 1;
    pen.fillRect(this.from / whole * this.width, Timeline.HEIGHT - 6, Math.max(3, this.span / whole * this.width), 4);
  }
  drawAxis(pen) {
    const rough = this.span / Math.max(2, this.width / 90), power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].find(n => n * power >= rough) * power;
    for (let at = Math.ceil(this.from / step) * step; at <= this.from + this.span; at += step) {
      const x = this.x(at);
      pen.fillStyle = this.paint.line;
      pen.fillRect(x, 18, 1, Timeline.HEIGHT - 28);
      pen.fillStyle = this.paint.soft;
      pen.textAlign = x < 24 ? "left" : x > this.width - 24 ? "right" : "center";
      pen.fillText(at ? timeText(at) : "0", Math.min(Math.max(x, 0), this.width), 9);
    }
    pen.textAlign = "left";
    pen.fillText("host", 0, Timeline.HOST[0] - 8);
    pen.fillText(this.one.launches.length ? "device" : "device: no timestamps", 0, Timeline.DEVICE[0] - 8);
  }
  box(slice) {
    const [top, height] = slice.track === "host" ? Timeline.HOST : Timeline.DEVICE;
    const left = this.x(slice.begun), right = this.x(slice.begun + slice.took);
    return [Math.max(left, -2), top, Math.min(right, this.width + 2) - Math.max(left, -2), height];
  }
  drawSlice(pen, slice) {
    const [left, top, width, height] = this.box(slice);
    if (left > this.width || left + width < 0) return;
    pen.fillStyle = this.paint[slice.colour];
    pen.fillRect(left, top, Math.max(width - (width > 3 ? 1 : 0), 0.7), height);
    if (width < 34) return;
    pen.save();
    pen.beginPath();
    pen.rect(left, top, width - 3, height);
    pen.clip();
    pen.fillStyle = this.onto(this.paint[slice.colour]);
    const parts = slice.name.split("/").filter(Boolean);
    pen.fillText(parts[parts.length - 1] || slice.name, Math.max(left, 0) + 4, top + height / 2);
    pen.restore();
  }
  onto(colour) {
    const [red, green, blue] = colour.match(/[\d.]+/g).map(Number);
    return 0.3 * red + 0.59 * green + 0.11 * blue > 118 ? "#10141c" : "#fff";
  }
  outline(pen, slice) {
    const [left, top, width, height] = this.box(slice);
    pen.strokeStyle = this.paint.ink;
    pen.lineWidth = 2;
    pen.strokeRect(left, top - 2, Math.max(width, 2), height + 4);
  }
  find(event) {
    const box = this.canvas.getBoundingClientRect();
    const y = event.clientY - box.top, at = this.from + (event.clientX - box.left) / this.width * this.span;
    const track = y < (Timeline.HOST[0] + Timeline.HOST[1] + Timeline.DEVICE[0]) / 2 ? "host" : "device";
    const near = 4 * this.span / this.width;
    const off = slice => Math.max(slice.begun - at, at - slice.begun - slice.took, 0);
    const found = this.slices.filter(slice => slice.track === track && off(slice) <= near);
    return found.sort((a, b) => off(a) - off(b))[0] || null;
  }
  step(by) {
    const name = this.chosen?.track ?? (this.one.launches.length ? "device" : "host");
    const track = this.slices.filter(slice => slice.track === name);
    const place = this.chosen ? track.indexOf(this.chosen) + by : 0;
    this.select(track[Math.min(Math.max(place, 0), track.length - 1)] || null);
    const slice = this.chosen;
    if (slice && (slice.begun < this.from || slice.begun + slice.took > this.from + this.span))
      this.show(slice.begun + slice.took / 2 - this.span / 2, this.span);
  }
  select(slice) { this.chosen = slice; this.tell(); this.draw(); }
  tell() {
    const slice = this.hovered || this.chosen, one = this.one;
    this.facts.replaceChildren();
    if (!slice) {
      const began = `Starts ${timeText(one.begun)} after the first event, takes ${timeText(one.elapsed)}.`;
      const how = " Tap a slice for details. Drag to move; pinch, or Ctrl and wheel, to zoom.";
      this.facts.append(make("span", "soft", began + how));
      return;
    }
    this.facts.append(make("b", "", slice.name));
    if (slice.track === "device") {
      const link = piece({ text: "show its row", link: this.data.operations[this.data.launches[slice.place]][2] });
      link.addEventListener("click", () => setTimeout(follow));
      this.facts.append(link);
    }
    const share = (100 * slice.took / (one.elapsed || 1)).toFixed(1);
    const said = [`${timeText(slice.took)}, ${share} % of the inference`, `from ${timeText(slice.begun)}`];
    if (slice.track === "device") this.tellLaunch(slice, said);
    else if (slice.tensor >= 0) {
      const tensor = (slice.name === "write" ? this.data.inputs : this.data.outputs)[slice.tensor];
      if (tensor !== undefined) said.push(`tensor ${tensor}`);
    }
    this.facts.append(make("span", "", said.join("; ")));
  }
  tellLaunch(slice, said) {
    const [, group, , median] = this.data.operations[this.data.launches[slice.place]];
    said[0] = `${this.data.groups[group][1]}: ${said[0]}`;
    said.push(`launch ${slice.place + 1} of ${this.data.launches.length}`);
    const before = this.one.launches[slice.place - 1];
    if (before) said.push(`${timeText(slice.begun - before.at(-2) - before.at(-1))} after the previous launch`);
    if (slice.times.length === 4) said.push(`${timeText(slice.begun - slice.times[0])} after it was queued`);
    said.push(`median of the operation ${timeText(median)}`);
  }
  listen() {
    const canvas = this.canvas, on = (name, act, options) => canvas.addEventListener(name, act, options);
    const acts = this.acts;
    on("wheel", event => {
      if (event.deltaX && Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        this.show(this.from + event.deltaX / this.width * this.span, this.span);
      } else if (event.ctrlKey || event.metaKey || document.activeElement === canvas) {
        this.zoom(1.002 ** -event.deltaY, event.offsetX / this.width);
      } else return;
      event.preventDefault();
    }, { passive: false });
    const keys = {
      "+": acts.in, "=": acts.in, "-": acts.out, "0": acts.fit, Home: acts.fit,
      ArrowLeft: acts.back, ArrowRight: acts.on,
      ArrowUp: () => this.turn("host"), ArrowDown: () => this.turn("device"), Escape: () => this.select(null),
    };
    on("keydown", event => {
      if (!keys[event.key] || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      keys[event.key]();
    });
    on("pointerdown", event => this.press(event));
    on("pointermove", event => this.move(event));
    for (const name of ["pointerup", "pointercancel"]) on(name, event => this.release(event));
    on("pointerleave", () => { if (this.hovered) { this.hovered = null; this.tell(); this.draw(); } });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.colours());
  }
  focus() {
    const slice = this.chosen, at = slice && (slice.begun + slice.took / 2 - this.from) / this.span;
    return slice && at >= 0 && at <= 1 ? at : 0.5;
  }
  turn(track) {
    const at = this.chosen ? this.chosen.begun : this.from;
    const found = this.slices.filter(slice => slice.track === track);
    this.select(found.sort((a, b) => Math.abs(a.begun - at) - Math.abs(b.begun - at))[0] || this.chosen);
  }
  press(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, event.clientX);
    this.moved = 0;
  }
  move(event) {
    if (!this.pointers.has(event.pointerId)) {
      const found = event.pointerType === "mouse" ? this.find(event) : null;
      if (found !== this.hovered) { this.hovered = found; this.tell(); this.draw(); }
      return;
    }
    const before = [...this.pointers.values()];
    this.moved += Math.abs(event.clientX - this.pointers.get(event.pointerId));
    this.pointers.set(event.pointerId, event.clientX);
    const after = [...this.pointers.values()], left = this.canvas.getBoundingClientRect().left;
    const middle = values => values.reduce((a, b) => a + b) / values.length;
    if (after.length === 2) {
      const apart = values => Math.max(Math.abs(values[0] - values[1]), 10);
      this.zoom(apart(after) / apart(before), (middle(after) - left) / this.width);
    }
    if (this.moved > 4) this.show(this.from - (middle(after) - middle(before)) / this.width * this.span, this.span);
  }
  release(event) {
    if (event.type === "pointerup" && this.pointers.size === 1 && this.moved <= 4) this.select(this.find(event));
    this.pointers.delete(event.pointerId);
  }
}
