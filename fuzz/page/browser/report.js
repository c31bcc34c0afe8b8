// The view of a run or a campaign: findings first, then what was reached, and all tables.

const MOST_CARDS = 12; // shown at first

function ReportView({ report, theme, bar, onTrace }) {
  const [chosen, setChosen] = useKept("cell", null); // the cell of the matrix whose cards are shown
  const [all, setAll] = useKept("all cards", false);
  const cards = report.cards || [], list = useRef();
  const shown = chosen && report.matrix ? mergedCell(report.matrix, chosen).cards : null;
  const choose = (cell) => {
    setChosen(cell);
    requestAnimationFrame(() => list.current?.scrollIntoView({ block: "start" }));
  };
  return html`<div class="report">
    <header class="bar"><div class="names"><h1><bdi>${visible(report.title)}</bdi></h1></div><${ThemeButton} theme=${theme} /></header>
    ${bar}<section class=${`verdict ${report.mood}`} aria-label="Verdict"><div class="line"><span class="badge" aria-hidden="true">${{ bad: "✗", good: "✓" }[report.mood] || "○"}</span><b><bdi>${visible(report.verdict)}</bdi></b></div>
      <p>${visible(report.headline)}</p></section>
    <main class="sheet">
      <dl class="figures">${report.figures.map(([what, much]) => html`<div key=${what}><dt>${visible(what)}</dt><dd>${visible(much)}</dd></div>`)}</dl>
      ${(report.notes || []).map((one) => html`<p class="note" key=${one}>${visible(one)}</p>`)}
      ${report.matrix && html`<${MatrixView} matrix=${report.matrix} onCards=${choose} />`}
      ${cards.length > 0 && html`<section ref=${list} aria-labelledby="cards-title"><h2 id="cards-title">${shown ? `${count(shown.length, "finding")} of this cell` : count(cards.length, "finding")}
          ${shown && html`<button class="link" onClick=${() => setChosen(null)}>all ${cards.length}</button>`}</h2>
        ${cards.map((card, i) => (shown ? shown.includes(i) : all || i < MOST_CARDS) && html`<${Card} key=${card.page ? `${card.page} ${report.matrix ? card.attention : ""}` : i} card=${card} onTrace=${onTrace} />`)}
        ${cards.length > MOST_CARDS && !shown && !all && html`<button class="link" onClick=${() => setAll(true)}>all ${count(cards.length, "finding")}</button>`}</section>`}
      ${(report.charts || []).length > 0 && html`<${Charts} charts=${report.charts} />`}
      <div class="tables">${(report.tables || []).map((table, i) => html`<${TableView} key=${table.title} id=${`table-${i}`} table=${table} />`)}</div>
      ${report.command && html`<section aria-labelledby="repeat-title"><h2 id="repeat-title">Repeat it</h2><p class="code">${visible(report.command)}</p></section>`}
    </main></div>`;
}

function Card({ card, onTrace }) {
  return html`<article class="card"><div class="line"><b><bdi>${visible(card.headline)}</bdi></b>
      ${card.target && html`<span class="tag"><bdi>${visible(card.target)}</bdi></span>`}${card.attention && html`<span class="tag" title=${visible(card.attention)}>${short(card.attention, 60)}</span>`}
      ${card.page && html`<a class="go" href=${card.page} target="_blank" rel="noopener">Open the trace<span class="sr"> in another tab</span></a>`}
      ${card.trace >= 0 && html`<button class="go" onClick=${() => onTrace(card.trace)}>Open the trace</button>`}</div>
    <pre tabindex="0" role="group" aria-label="What was found">${visible(card.text).replaceAll("[U+000A]", "\n")}</pre>
    ${card.why_not && html`<p class="quiet">${visible(card.why_not)}</p>`}
    ${card.command && html`<p class="code">${visible(card.command)}</p>`}</article>`;
}

function TableView({ table, id }) {
  const [all, setAll] = useKept(`rows of ${table.title}`, false), most = 30;
  const rows = all ? table.rows : table.rows.slice(0, most), bars = table.bars || [], marks = table.marks || [];
  const numeric = table.columns.map((_, i) => table.rows.every((row) => /^[\d,.%+-]*$/.test(row[i])));
  return html`<section aria-labelledby=${id}><h2 id=${id}>${visible(table.title)}</h2>${table.note && html`<p class="quiet">${visible(table.note)}</p>`}
    <div class="wide" tabindex="0" role="group" aria-labelledby=${id}><table><thead><tr>${table.columns.map((one, i) => html`<th key=${i} scope="col" class=${numeric[i] ? "num" : ""}>${visible(one)}</th>`)}${bars.length > 0 && html`<th scope="col"><span class="sr">share</span></th>`}</tr></thead>
    <tbody>${rows.map((row, i) => html`<tr key=${i} class=${marks[i] || ""}>${row.map((text, j) => (j === 0 ? html`<th key=${j} scope="row">${marks[i] === "bad" ? "✗ " : ""}<bdi>${visible(text)}</bdi></th>` : html`<td key=${j} class=${numeric[j] ? "num" : ""}><bdi>${visible(text)}</bdi></td>`))}
      ${bars.length > 0 && html`<td class="bar-cell"><span class="meter" aria-hidden="true"><i style=${{ width: `${Math.round(100 * bars[i])}%` }}></i></span></td>`}</tr>`)}</tbody></table></div>
    ${table.rows.length > most && !all && html`<button class="link" onClick=${() => setAll(true)}>all ${number.format(table.rows.length)} rows</button>`}</section>`;
}

/** What one oracle, or all of them (-1), made of an attention type on a target. */
function mergedCell(matrix, { oracle, attention, target }) {
  const row = matrix.attention.indexOf(attention), column = matrix.targets.indexOf(target);
  const cells = (oracle < 0 ? matrix.oracles.map((_, i) => i) : [oracle]).map((i) => matrix.cells[i]?.[row]?.[column] || { state: "not run" });
  const pick = (state) => cells.find((cell) => cell.state === state);
  return { ...(pick("found") || pick("clean") || pick("not built") || cells[0]), what: cells.flatMap((cell) => cell.what || []), cards: [...new Set(cells.flatMap((cell) => cell.cards || []))], before: cells.map((cell) => cell.before || "").filter(Boolean).join("; ") };
}

/** Targets by attention types, for one oracle at a time or all. */
function MatrixView({ matrix, onCards }) {
  const [oracle, setOracle] = useKept("oracle", -1);
  return html`<section aria-labelledby="matrix-title"><h2 id="matrix-title">Targets by attention types</h2>
    <div class="choices" role="group" aria-label="Oracle">${["all", ...matrix.oracles].map((name, i) => html`<button key=${name} aria-pressed=${oracle === i - 1} onClick=${() => setOracle(i - 1)}>${name === "all" ? "all oracles" : name}</button>`)}</div>
    <div class="wide" tabindex="0" role="group" aria-labelledby="matrix-title"><table class="matrix"><thead><tr><th scope="col">attention</th>${matrix.targets.map((target) => html`<th key=${target} scope="col"><bdi>${visible(target)}</bdi></th>`)}</tr></thead>
    <tbody>${matrix.attention.map((name) => html`<tr key=${name}><th scope="row">${visible(name)}</th>${matrix.targets.map((target) => {
      const place = { oracle, attention: name, target }, cell = mergedCell(matrix, place), what = [...new Set(cell.what)].join(", ");
      const text = cell.state === "found" ? what : { clean: "✓", "not built": "not built", "not run": "–" }[cell.state];
      const said = `${target}, ${name}: ${cell.state === "found" ? what : cell.state}, ${count(cell.operations || 0, "operation")}${cell.before ? `; before: ${cell.before}` : ""}`;
      return html`<td key=${target} class=${`cell-${cell.state.replace(" ", "-")}`} title=${said}>${cell.cards.length ? html`<button class="link" aria-label=${said} onClick=${() => onCards(place)}>${visible(text)}</button>` : html`<span aria-label=${said} role="img">${visible(text)}</span>`}${cell.before ? html`<span class="was" aria-hidden="true">was ${visible(cell.before)}</span>` : ""}</td>`;
    })}</tr>`)}</tbody></table></div></section>`;
}
