"""Define the style of pages, light and dark. Colours are variables, so that every part follows."""

STYLE = """
:root { color-scheme: light dark;
  --page: #f5f6f8; --card: #ffffff; --ink: #1b1f27; --soft: #5c6470; --line: #dfe3e9; --grid: #e9ecf1;
  --accent: #2563c9; --wash: #e8f0fd; --good: #14794c; --bad: #b3261e; --warm: #a85b00; --dot: #2563c9; }
@media (prefers-color-scheme: dark) { :root {
  --page: #121419; --card: #1b1e25; --ink: #e8eaef; --soft: #a0a8b5; --line: #2e333d; --grid: #282d36;
  --accent: #82aaff; --wash: #22304b; --good: #6fd3a0; --bad: #ff8f86; --warm: #f0b35e; --dot: #82aaff; } }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; max-width: 1120px; padding: 24px 20px 64px; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
  font-variant-numeric: tabular-nums; overflow-wrap: break-word; }
h1 { font-size: 26px; line-height: 1.2; margin: 0 0 4px; letter-spacing: -.01em; }
h2 { font-size: 21px; line-height: 1.3; margin: 40px 0 12px; }
h3 { font-size: 14px; margin: 24px 0 8px; } h3.part { font-size: 17px; margin: 28px 0 10px; }
p { margin: 0 0 8px; } ul { margin: 0; padding-left: 18px; }
a { color: var(--accent); text-decoration: none; } a:hover { text-decoration: underline; }
code { font: 12.5px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: nowrap; }
.range { color: var(--soft); font-size: 13px; } td .range { display: block; font-size: 12px; }
.soft, .tile p, .sub, figure p { color: var(--soft); } .good { color: var(--good); } .bad { color: var(--bad); }
.sub { font-size: 13px; line-height: 1.45; display: block; }
.note { border-left: 3px solid var(--warm); background: var(--card); padding: 8px 12px; margin: 12px 0; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(190px, 1fr)); gap: 12px; margin: 16px 0; }
.tile, .card, details.task { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
.tile { padding: 12px 16px; } .tile dt { font-size: 13px; color: var(--soft); }
.tile dd { margin: 2px 0; font-size: 22px; font-weight: 650; line-height: 1.25; letter-spacing: -.01em; }
.tile p { font-size: 13px; line-height: 1.4; margin: 0; }
.card { padding: 16px; margin: 12px 0; } .card > h3:first-child, .card > figure { margin-top: 0; }
.pair, .charts { display: grid; gap: 20px 28px;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); }
.pair { gap: 12px; } .pair .card { margin: 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { padding: 7px 10px; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
tbody tr:last-child td { border-bottom: 0; } tbody tr:hover { background: var(--wash); }
th { font-size: 13px; font-weight: 600; color: var(--soft); white-space: nowrap; vertical-align: bottom; }
th.number, td.number { text-align: right; white-space: nowrap; }
td.name { white-space: nowrap; } td.message, .sub, h2 { overflow-wrap: anywhere; }
th button { all: unset; cursor: pointer; } th button:hover { color: var(--accent); }
th button:focus-visible, a:focus-visible, summary:focus-visible, input:focus-visible {
  outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 3px; }
th[aria-sort] { color: var(--ink); } th[aria-sort] button::after { content: " \\2193"; }
th[aria-sort=ascending] button::after { content: " \\2191"; }
.bar { display: flex; height: 8px; border-radius: 4px; overflow: hidden; background: var(--grid); margin: 6px 0; }
.bar i { display: block; }
.layers { display: flex; height: 26px; border-radius: 6px; overflow: hidden; margin: 6px 0 8px; }
.layers a { display: block; min-width: 0; box-shadow: inset -1px 0 0 var(--card); } .layers a:hover { opacity: .7; }
.entry { white-space: nowrap; margin-right: 10px; }
.o0 { background: #4e79c4; fill: #4e79c4; } .o1 { background: #e08a3c; fill: #e08a3c; }
.o2 { background: #3f9b6c; fill: #3f9b6c; } .o3 { background: #c85a5a; fill: #c85a5a; }
.o4 { background: #8a6fc0; fill: #8a6fc0; } .o5 { background: #b09a3a; fill: #b09a3a; }
.o6 { background: #4aa3b5; fill: #4aa3b5; } .o7 { background: #b8679e; fill: #b8679e; }
.rest { background: var(--soft); }
.headline { font-size: 18px; line-height: 1.4; }
.key { display: inline-block; width: 9px; height: 9px; border-radius: 2px; margin-right: 5px; }
input.filter { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; padding: 7px 12px; width: 100%; max-width: 360px; margin: 0 0 10px; }
details.task { margin: 10px 0; scroll-margin-top: 12px; }
details.task > div { padding: 0 18px 18px; }
summary { cursor: pointer; padding: 12px 18px; display: flex; flex-wrap: wrap; gap: 2px 16px; align-items: baseline; }
summary::-webkit-details-marker { display: none; } summary { list-style: none; }
summary::before { content: "\\25B8"; color: var(--soft); margin-right: -8px; }
details[open] > summary::before { content: "\\25BE"; }
summary b { font-weight: 650; } summary .sub { flex: 1 1 300px; } summary .end { white-space: nowrap; }
figure { margin: 8px 0 0; min-width: 0; } figcaption { font-weight: 600; font-size: 14px; margin-bottom: 4px; }
figure p { font-size: 13px; margin: 4px 0 0; }
svg { display: block; width: 100%; height: auto; max-width: 440px; }
svg text { font-size: 10px; fill: var(--soft); }
svg text.strong { fill: var(--ink); font-weight: 650; font-size: 11px; }
.grid { stroke: var(--grid); fill: none; } .band { fill: var(--grid); opacity: .6; }
.dots { stroke: var(--dot); stroke-width: 4.5; stroke-linecap: round; opacity: .6; fill: none; }
.level { stroke: var(--warm); stroke-width: 1.4; stroke-dasharray: 5 4; fill: none; }
.roof { stroke: var(--warm); stroke-width: 2; fill: none; stroke-linejoin: round; }
.point { fill: var(--dot); stroke: var(--card); } .faint { fill: var(--soft); opacity: .35; }
.chart { display: grid; grid-template: 1fr 22px / 62px 1fr; margin: 12px 0 8px; }
.chart.map { height: 420px; } .chart.load { height: 150px; }
.chart svg { width: 100%; height: 100%; max-width: none; min-height: 0; background: var(--grid); }
.chart svg * { vector-effect: non-scaling-stroke; } .chart rect { stroke: var(--card); paint-order: stroke; }
.chart a:hover rect { opacity: .7; } .chart a:focus-visible rect { stroke: var(--ink); stroke-width: 3; }
.held { fill: var(--accent); opacity: .55; } .heights, .starts { position: relative; }
.starts { grid-column: 2; } .heights span, .starts span { position: absolute; font-size: 12px; color: var(--soft);
  line-height: 1; white-space: nowrap; } .heights span { right: 8px; transform: translateY(50%); }
.starts span { top: 6px; } footer { margin-top: 40px; color: var(--soft); font-size: 13px; }
@media (max-width: 640px) { svg text { font-size: 11px; } svg text.strong { font-size: 12px; }
  td .range { white-space: normal; max-width: 80px; margin-left: auto; } body { padding: 16px 12px 48px; }
  .wide { display: none; } th, td { padding: 7px 6px; }
  td:first-child, th:first-child { padding-left: 0; } .card { padding: 12px; } summary { padding: 12px; }
  details.task > div { padding: 0 12px 14px; } .tiles { grid-template-columns: 1fr 1fr; gap: 8px; }
  .tile { padding: 10px 12px; } .tile dd { font-size: 18px; } }
@media print { body { max-width: none; background: none; } details.task { break-inside: avoid; } }
"""
