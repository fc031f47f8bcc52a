"""Define the styles that only reports need, in addition to the style of all pages."""

REPORT_STYLE = """
.build { background: var(--accent); } .verify { background: var(--warm); }
.measure { background: var(--good); }
.cross { stroke: var(--bad); stroke-width: 1.6; fill: none; }
.best { stroke: var(--good); stroke-width: 2; fill: none; } .area { fill: var(--good); opacity: .1; }
.mark { fill: var(--good); stroke: var(--card); stroke-width: 1.5; }
.span.default { fill: var(--warm); opacity: .25; } .span.tuned { fill: var(--good); opacity: .25; }
.bars { display: grid; grid-template-columns: minmax(110px, max-content) minmax(0, 1fr) max-content;
  gap: 8px 14px; align-items: center; margin: 10px 0 4px; }
.bars .row { display: contents; } .bars .end { text-align: right; font-size: 14px; }
.bars .row > :first-child { max-width: 330px; overflow-wrap: anywhere; font-size: 14px; line-height: 1.35; }
.tracks { display: grid; gap: 2px; } .tracks i { display: block; height: 14px; min-width: 2px; border-radius: 3px; }
.tracks i + i, .tracks i:not(:only-child) { height: 7px; }
.tracks .default { background: var(--warm); } .tracks .tuned { background: var(--good); }
.tracks .other { background: var(--soft); opacity: .7; }
.tracks .spread { position: relative; } .tracks .spread i { height: 14px; }
.whisker { position: absolute; top: 6px; height: 2px; min-width: 2px; background: var(--ink); }
details.rows { border-top: 1px solid var(--line); margin-top: 12px; } details.rows > summary { padding: 10px 0 0;
  flex-wrap: nowrap; }
@media (max-width: 640px) { .bars { display: block; }
  .bars .row { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 2px 10px; padding-bottom: 8px; }
  .bars .row > :first-child { flex: 1 1 40%; max-width: none; } .bars .end { flex: none; margin-left: auto; }
  .bars .tracks { flex: 1 0 100%; order: 1; } }
.median { stroke-width: 3; stroke-linecap: round; } .median.default { stroke: var(--warm); }
.median.tuned { stroke: var(--good); }
.values { display: flex; flex-wrap: wrap; gap: 6px; } .parameters { display: grid; gap: 10px 24px;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 330px), 1fr)); margin: 0; }
.parameters dt { font-weight: 600; font-size: 13px; }
.parameters .soft { font-weight: 400; } .parameters dd { margin: 2px 0 0; }
.value { border: 1px solid var(--line); border-radius: 6px; padding: 1px 7px; font-size: 13px; color: var(--soft); }
.value b { color: var(--ink); } .value.chosen { border-color: var(--good); box-shadow: inset 0 0 0 1px var(--good); }
.value.failed { text-decoration: line-through; }
.tensor { overflow-wrap: anywhere; scroll-margin: 40vh; }
.tensor:target { background: var(--wash); outline: 3px solid var(--accent); outline-offset: 3px; border-radius: 3px; }
"""
