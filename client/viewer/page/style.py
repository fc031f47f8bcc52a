"""Define the styles that only the page of a profile needs, in addition to the style of all pages."""

PROFILE_STYLE = """
:root { --host: #8a6fc0; --copy: #3b8ea0; --idle: #d9822b; --own: #b8679e; --kernel: #4e79c4; --spare: #848c99; }
.part-host { background: var(--host); } .part-write { background: var(--copy); } .part-read { background: #3f9b6c; }
.part-enqueue { background: #d9822b; } .part-wait { background: #76808f; } .part-profiler { background: var(--own); }
.is-host { background: var(--host); } .is-write { background: var(--copy); } .is-queue { background: #e3a35c; }
.is-kernels, .is-device { background: var(--kernel); } .is-gaps { background: #cf5f3c; }
.is-wake-up { background: #c9a227; } .is-read { background: #3f9b6c; } .is-profiler { background: var(--own); }
.is-rest { background: var(--spare); }
ol.findings { list-style: none; margin: 0; padding: 0; }
.findings li { display: grid; grid-template-columns: 80px 1fr; gap: 4px 16px; align-items: start; padding: 9px 0;
  border-bottom: 1px solid var(--line); } .findings li:last-child { border-bottom: 0; padding-bottom: 0; }
.findings li:first-child { padding-top: 0; }
.findings .meter { width: 100%; height: 8px; margin: 7px 0 0; display: block; }
.layers.tall { height: 34px; } .layers i { display: block; min-width: 0; box-shadow: inset -1px 0 0 var(--card); }
table.account td:first-child { white-space: nowrap; } table.account tfoot td { border-top: 1px solid var(--line);
  border-bottom: 0; font-weight: 650; }
.controls { display: flex; flex-wrap: wrap; gap: 8px; justify-content: space-between; margin-bottom: 8px; }
.controls select, .controls button { font: inherit; font-size: 14px; color: inherit; background: var(--page);
  border: 1px solid var(--line); border-radius: 8px; min-height: 36px; padding: 4px 10px; max-width: 100%; }
.controls button { min-width: 40px; cursor: pointer; } .controls button:hover { border-color: var(--accent); }
.controls button:focus-visible, .controls select:focus-visible, canvas:focus-visible, button.fold:focus-visible {
  outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 6px; }
.buttons { display: flex; gap: 4px; }
.timeline canvas { display: block; width: 100%; height: 158px; touch-action: pan-y; cursor: grab; }
.timeline canvas:active { cursor: grabbing; }
.facts { min-height: 4.7em; font-size: 14px; margin: 6px 0 8px; display: flex; flex-wrap: wrap; gap: 0 10px;
  align-content: flex-start; overflow-wrap: anywhere; }
.facts span { flex-basis: 100%; }
.legend { margin: 2px 0; } .legend .entry { white-space: normal; overflow-wrap: anywhere; }
.legend b { display: inline-block; min-width: 56px; font-weight: 600; }
table.foldable tr.more td { padding: 4px 12px 14px; background: var(--page); }
table.folding tbody tr.more { display: none; } table.folding tbody.open tr.more { display: table-row; }
table.foldable tr.more:hover { background: none; }
table.foldable tbody tr:last-child td { border-bottom: 1px solid var(--line); }
table.foldable tbody:last-child tr:last-child td { border-bottom: 0; }
table.folding tr.main { cursor: pointer; } table.foldable tbody { scroll-margin: 20vh; }
table.folding tbody.open tr.main td { border-bottom: 0; background: var(--wash); }
button.fold { all: unset; cursor: pointer; font-weight: 600; overflow-wrap: anywhere; position: relative;
  padding-left: 15px; display: block; }
table.folding button.fold::before { content: "\\25B8"; color: var(--soft); position: absolute; left: 0; }
button.all { font: inherit; font-size: 14px; color: var(--accent); background: none; border: 0; cursor: pointer;
  padding: 10px 0 2px; min-height: 40px; } table.short tbody.late { display: none; }
table.folding .open button.fold::before { content: "\\25BE"; }
td .under { color: var(--soft); font-size: 12.5px; display: block; padding-left: 15px; }
dl.details { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 3px 16px; margin: 6px 0 0;
  font-size: 13.5px; } dl.details dt { color: var(--soft); } dl.details dd { margin: 0; overflow-wrap: anywhere; }
dl.details code { white-space: normal; overflow-wrap: anywhere; }
.meter { display: inline-block; width: 44px; height: 6px; border-radius: 3px; background: var(--grid); overflow: hidden;
  margin-left: 7px; vertical-align: 1px; } .meter i { display: block; height: 100%; background: var(--accent); }
circle.op { stroke: var(--card); stroke-width: 1; } a:hover circle.op { stroke: var(--ink); }
.card table + p.sub, .scroll + p.sub { margin: 10px 0 0; } .pair .chart.load { height: 210px; }
.pair td { overflow-wrap: anywhere; }
.pair .card > figure svg { margin: 0 auto; max-width: 520px; }
@media (max-width: 640px) { .findings li { grid-template-columns: 1fr; }
  .findings .meter { margin: 0 0 2px; height: 5px; } td .meter { display: none; } td .under { padding-left: 14px; }
  dl.details { grid-template-columns: minmax(0, 1fr); gap: 0; } dl.details dd { margin-bottom: 6px; }
  table.foldable tr.more td { padding: 2px 8px 10px; } .controls select { flex: 1 1 100%; }
  .buttons { flex: 1; } .controls button { flex: 1; min-height: 40px; } .entry { display: inline-block; } }
@media (max-width: 380px) { table { font-size: 13px; } th, td { padding: 7px 4px; } th { font-size: 12px; } }
@media (hover: none) { .controls button { min-height: 42px; } }
@media print { table.folding tbody tr.more { display: table-row; } }
"""
