"""What only reports need beside the style of all pages."""

REPORT_STYLE = """
.build { background: var(--accent); } .verify { background: var(--warm); }
.measure { background: var(--good); }
.cross { stroke: var(--bad); stroke-width: 1.6; fill: none; }
.best { stroke: var(--good); stroke-width: 2; fill: none; } .area { fill: var(--good); opacity: .1; }
.mark { fill: var(--good); stroke: var(--card); stroke-width: 1.5; }
.span.default { fill: var(--warm); opacity: .25; } .span.tuned { fill: var(--good); opacity: .25; }
.whole.default { fill: var(--warm); opacity: .7; } .whole.tuned { fill: var(--good); opacity: .8; }
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
