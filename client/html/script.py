"""Hold the script of all pages: it sorts and filters tables, and opens the target of a link. Pages are readable without
it.
"""

SCRIPT = """
"use strict";
const order = new Intl.Collator(undefined, { numeric: true });
function items(table) { return table.tBodies.length > 1 ? [...table.tBodies] : [...table.tBodies[0].rows]; }
function key(item, column) { return (item.rows ? item.rows[0] : item).cells[column].dataset.key; }
function compare(a, b, numeric) {
  if (a === "" || b === "") return (a === "") - (b === "");
  return numeric ? a - b : order.compare(a, b);
}
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const numeric = head.classList.contains("number");
      const up = head.ariaSort ? head.ariaSort === "descending" : !numeric;
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.ariaSort = up ? "ascending" : "descending";
      const rows = items(table).sort((a, b) => {
        const [x, y] = [key(a, column), key(b, column)];
        return x === "" || y === "" || up ? compare(x, y, numeric) : compare(y, x, numeric);
      });
      rows[0]?.parentElement.append(...rows);
    });
  });
}
for (const place of document.querySelectorAll("[data-filter]")) {
  const found = place.querySelectorAll("[data-words]");
  const rows = [...place.querySelectorAll(".filtered")].flatMap(items);
  if (rows.length < 3) continue;
  const input = document.createElement("input");
  input.className = "filter";
  input.type = "search";
  input.placeholder = place.dataset.filter;
  input.ariaLabel = place.dataset.filter;
  place.querySelector(".filtered").closest(".scroll").before(input);
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().replace(/(\\d)\\s*[x*]\\s*(?=\\d)/g, "$1×").split(/\\s+/).filter(Boolean);
    const hides = text => words.some(word => !text.toLowerCase().includes(word));
    for (const row of rows) row.hidden = hides(row.textContent);
    for (const one of found) one.hidden = hides(one.dataset.words);
  });
}
function show() {
  const task = location.hash && document.getElementById(location.hash.slice(1));
  if (!task || task.tagName !== "DETAILS") return;
  for (let fold = task; fold; fold = fold.parentElement.closest("details")) { fold.hidden = false; fold.open = true; }
  task.scrollIntoView();
}
addEventListener("hashchange", show);
show();
"""
