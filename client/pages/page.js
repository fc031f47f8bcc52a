// Put the blocks of a page, as blocks.py defines them, into elements. Every text becomes a text node, never markup.
"use strict";

const order = new Intl.Collator(undefined, { numeric: true });
const opens = new Map(); // by id of what is still folded away, a function that opens one fold around it
const found = new WeakMap(); // by row or fold, its blocks or texts, and once a filter has looked at them their words
const folded = []; // functions that make the details of rows, for printing
const FIRST = 20; // rows of a table with details that are shown at once

function make(tag, style, ...children) {
  const made = document.createElement(tag);
  if (style) made.className = style;
  made.append(...children);
  return made;
}

function button(name, act, style, hint) {
  const made = make("button", style, ...words(name));
  made.type = "button";
  if (hint) made.title = made.ariaLabel = hint;
  made.addEventListener("click", act);
  return made;
}

// Texts: strings, or lists of runs.

function words(text) {
  return [text].flat().map(run => typeof run === "string" ? run : "bar" in run ? bar(run) : piece(run));
}

function piece(run) {
  const made = make(run.link ? "a" : "span", run.style, ...words(run.text ?? ""));
  if (run.link) made.href = "#" + run.link;
  if (run.hint) made.title = run.hint;
  return made;
}

function bar(run) {
  const made = make("span", "bar");
  made.append(part("i", run.style, 0, run.bar));
  if ("low" in run) made.append(part("i", "whisker", run.low, run.high));
  return made;
}

function part(tag, style, from, to) {
  const made = make(tag, style);
  made.style.left = `${100 * from}%`;
  made.style.width = `${100 * (to - from)}%`;
  return made;
}

function flat(value) { // all words of a block, for filters
  if (typeof value === "string") return value;
  if (Array.isArray(value)) return value.map(flat).join(" ");
  if (value === null || typeof value !== "object") return "";
  return Object.entries(value).map(([name, each]) => name === "kind" || name === "style" ? "" : flat(each)).join(" ");
}

// Blocks.

const TAGS = { section: ["section", "h2"], figure: ["figure", "figcaption"] };
const KINDS = {
  text: block => make("p", block.style, ...words(block.text)),
  list: block => make("ul", "", ...block.items.map(item => make("li", "", ...words(item)))),
  tiles: block => make("dl", "tiles", ...block.items.map(([name, value, more]) =>
    make("div", "tile", make("dt", "", name), make("dd", "", value), make("p", "", more)))),
  facts: block => make("dl", block.style || "facts", ...block.rows.map(([name, value]) =>
    make("div", "", make("dt", "", name), make("dd", "", ...words(value))))),
  table, shares, drawing, fold, filter,
  timeline: block => new Timeline(block).place,
  group(block) {
    const [tag, head] = TAGS[block.style] || ["div", "h3"];
    return make(tag, block.style, ...(block.title ? [make(head, "", block.title)] : []), ...block.blocks.map(build));
  },
};

function build(block) { return KINDS[block.kind](block); }

function shares(block) {
  const pieces = block.pieces.map(([share, colour, hint, link]) => {
    const made = piece({ style: colour, hint, link });
    made.style.width = `${100 * share}%`;
    made.tabIndex = -1;
    return made;
  });
  return make("div", "", ...(pieces.length ? [make("div", "shares", ...pieces)] : []), legend(block.legend));
}

function legend(entries, title) {
  const made = make("p", "sub legend", ...(title ? [make("b", "", title)] : []));
  for (const [colour, name] of entries) made.append(make("span", "entry", make("i", "key " + colour), name), " ");
  return made;
}

function drawing(block) {
  const pen = tag => document.createElementNS("http://www.w3.org/2000/svg", tag);
  const picture = pen("svg"), area = make("div", "area", picture), made = make("div", "drawing", area);
  picture.setAttribute("viewBox", "0 0 1000 1000");
  picture.setAttribute("preserveAspectRatio", "none");
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", block.label);
  area.style.height = `${block.height}px`;
  for (const { d, style, hint, link } of block.paths) {
    const path = pen("path"), around = link ? pen("a") : picture;
    path.setAttribute("d", d);
    path.setAttribute("class", style);
    if (hint) path.appendChild(pen("title")).textContent = hint;
    if (link) around.setAttribute("href", "#" + link);
    around.append(path);
    if (link) picture.append(around);
  }
  for (const [x, y, text, style] of block.labels || []) area.append(at("label " + style, x, y, text));
  for (const [y, text] of block.up || []) area.append(at("up", 0, y, text));
  for (const [x, text] of block.across || []) area.append(at(x > 930 ? "across end" : "across", x, 1000, text));
  if (block.up) made.classList.add("scaled");
  if (block.axis) made.append(make("p", "axis", block.axis));
  return made;
}

function at(style, x, y, text) {
  const made = make("span", style, text);
  made.style.left = `${x / 10}%`;
  made.style.top = `${y / 10}%`;
  return made;
}

function fold(block) {
  const inner = make("div", ""), made = make("details", "fold", make("summary", "", ...words(block.title)), inner);
  if (block.id) made.id = block.id;
  if (block.words) findable(made, [block.words]);
  let built = false;
  const open = () => {
    made.open = true;
    if (built) return;
    built = true;
    inner.append(...block.blocks.map(build));
    refilter(made);
  };
  for (const id of ids(block.blocks)) opens.set(id, open);
  made.addEventListener("toggle", () => made.open && open());
  if (block.open) open();
  return made;
}

function ids(blocks) {
  return blocks.flatMap(block => [...(block.id ? [block.id] : []), ...(block.ids || []), ...ids(block.blocks || [])]);
}

// Tables.

function table(block) {
  const heads = block.columns.map(column => head(column));
  const bodies = block.rows.map((cells, place) => row(block, cells, place));
  const made = make("table", block.details ? "folding" : "", make("thead", "", make("tr", "", ...heads)), ...bodies);
  if (block.foot) made.append(make("tfoot", "", make("tr", "", ...cellsOf(block, block.foot))));
  heads.forEach((one, column) => one.append(button(block.columns[column].head, () => {
    sort(made, bodies, block, heads, column);
  })));
  const place = make("div", "scroll", made);
  if (!block.details || bodies.length <= FIRST + 5) return place;
  const show = button(`Show all ${bodies.length}`, () => made.classList.remove("short"), "all");
  made.classList.add("short");
  return make("div", "", place, show);
}

function head(column) {
  const made = make("th", `${column.number ? "number" : ""} ${column.wide ? "wide" : ""}`.trim());
  made.scope = "col";
  if (column.hint) made.title = column.hint;
  return made;
}

function cellsOf(block, cells) {
  return cells.map(([text], place) => make("td", head(block.columns[place]).className, ...words(text)));
}

function row(block, cells, place) {
  const line = make("tr", "", ...cellsOf(block, cells)), made = make("tbody", "", line), more = block.details?.[place];
  made.place = place;
  if (block.ids) made.id = block.ids[place];
  if (block.filtered) findable(made, [cells.map(([text]) => text), more || []]);
  if (!more) return made;
  let details = null;
  const unfold = () => {
    if (details) return;
    details = make("td", "", ...more.map(build));
    details.colSpan = cells.length;
    made.append(make("tr", "more", details));
  };
  folded.push(unfold);
  const opener = make("button", "fold", ...line.cells[0].childNodes);
  opener.type = "button";
  opener.ariaExpanded = "false";
  line.cells[0].append(opener);
  made.turn = open => {
    unfold();
    made.classList.toggle("open", open);
    opener.ariaExpanded = String(open);
  };
  line.addEventListener("click", event => {
    if (!event.target.closest("a") && !String(getSelection())) made.turn(!made.classList.contains("open"));
  });
  return made;
}

function sort(made, bodies, block, heads, column) {
  const own = heads[column], numeric = block.columns[column].number;
  const up = own.ariaSort ? own.ariaSort === "descending" : !numeric;
  for (const one of heads) one.ariaSort = null;
  own.ariaSort = up ? "ascending" : "descending";
  const key = body => block.rows[body.place][column][1];
  const sorted = [...bodies].sort((a, b) => {
    const [x, y] = up ? [key(a), key(b)] : [key(b), key(a)];
    if (x === null || y === null) return (key(a) === null) - (key(b) === null);
    return numeric ? x - y : order.compare(x, y);
  });
  made.tHead.after(...sorted);
}

// Filters.

function filter(block) {
  const made = make("input", "filter");
  made.type = "search";
  made.placeholder = made.ariaLabel = block.hint;
  made.addEventListener("input", () => {
    const asked = made.value.toLowerCase().replace(/(\d)\s*[x*]\s*(?=\d)/g, "$1×").split(/\s+/).filter(Boolean);
    for (const one of made.closest("section").querySelectorAll(".findable")) {
      one.hidden = asked.some(word => !textOf(one).includes(word));
    }
    for (const one of made.closest("section").querySelectorAll("table.short")) one.classList.remove("short");
  });
  return made;
}

function findable(made, shown) {
  made.classList.add("findable");
  found.set(made, shown);
}

function textOf(one) {
  const shown = found.get(one), text = typeof shown === "string" ? shown : flat(shown).toLowerCase();
  found.set(one, text);
  return text;
}

function refilter(made) {
  const field = made.closest("section")?.querySelector(".filter");
  if (field?.value) field.dispatchEvent(new Event("input"));
}

function follow() { // open what a link leads to
  const id = location.hash.slice(1);
  for (let more = true; id && more && !document.getElementById(id);) {
    more = opens.get(id);
    more?.();
  }
  const made = id && document.getElementById(id);
  if (!made) return;
  for (let around = made; around; around = around.parentElement.closest("details")) {
    around.hidden = false;
    if (around.tagName === "DETAILS") around.open = true;
  }
  made.closest("table")?.classList.remove("short");
  made.turn?.(true);
  made.scrollIntoView({ block: made.tagName === "DETAILS" ? "start" : "center" });
}

document.querySelector("main").append(...JSON.parse(document.getElementById("data").textContent).map(build));
addEventListener("hashchange", follow);
addEventListener("beforeprint", () => folded.forEach(unfold => unfold()));
follow();
