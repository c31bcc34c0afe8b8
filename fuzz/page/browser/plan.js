// The view of a plan: the layers by group, what a block id holds, and what requests of a length make of the pool.

const MOST_DRAWN = 40; // requests that are drawn one by one

const hundredths = new Intl.NumberFormat("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });

/** Bytes in the largest binary unit that leaves a whole part, as in the table of the terminal. */
function sizeText(bytes) {
  let size = bytes, unit = 0;
  while (size >= 1024 && unit < 4) {
    size /= 1024;
    unit += 1;
  }
  return unit ? `${hundredths.format(size)} ${["KiB", "MiB", "GiB", "TiB"][unit - 1]}` : count(bytes, "byte");
}

const percent = (part, whole) => `${((100 * part) / (whole || 1)).toFixed(1)} %`;
const sum = (values) => values.reduce((total, one) => total + one, 0);
const wide = (part, whole) => ({ width: `${(100 * part) / (whole || 1)}%` });
const groupColor = (group) => ({ backgroundColor: PALETTE[group % PALETTE.length] });
const groupClass = (group) => `pattern-${group % 6}`;
const timesText = (times) => (times < 0 ? "any number" : hundredths.format(times));

/** Runs of groups that are alike: [first, last]. */
function alikeGroups(plan) {
  const runs = [];
  plan.groups.forEach((group, i) => (group.alike === i ? runs.push([i, i]) : (runs[runs.length - 1][1] = i)));
  return runs;
}

const runName = ([first, last]) => (first === last ? `group ${first}` : `groups ${first} to ${last}, each`);

function PlanView({ plan, hash, setHash, theme }) {
  const [only, setOnly] = useState(-1); // the group that is picked out
  const far = (place) => Math.abs(plan.lengths[place] - hash.length);
  const at = hash.length === undefined ? plan.planned : plan.lengths.reduce((best, _, place) => (far(place) < far(best) ? place : best), 0);
  const setAt = (place) => setHash({ length: plan.lengths[place] });
  return html`<div class=${`report plan ${only < 0 ? "" : "picked"}`}>
    <header class="bar"><div class="names"><h1><bdi>${visible(plan.title)}</bdi></h1></div><${ThemeButton} theme=${theme} /></header>
    <section class=${`verdict ${plan.mood}`} aria-label="Verdict"><div class="line"><span class="badge" aria-hidden="true">${{ bad: "✗", good: "✓" }[plan.mood] || "○"}</span><b>${visible(plan.verdict)}</b></div>
      <p>${visible(plan.headline)}</p></section>
    <main class="sheet">
      ${plan.notes.map((one) => html`<p class="note" key=${one}>${visible(one)}</p>`)}
      <${Layers} plan=${plan} only=${only} setOnly=${setOnly} />
      <${BlockIds} plan=${plan} only=${only} />
      <${PlanRequests} plan=${plan} at=${at} setAt=${setAt} only=${only} />
      <${Memory} plan=${plan} />
      <div class="tables"><section aria-labelledby="figures-title"><h2 id="figures-title">The plan in figures</h2>
        <dl class="pairs">${plan.figures.map(([what, much]) => html`<div key=${what}><dt>${visible(what)}</dt><dd>${visible(much)}</dd></div>`)}</dl></section></div>
      ${plan.tables.map((table, i) => html`<${TableView} key=${i} id=${`table-${i}`} table=${table} />`)}
      ${plan.command && html`<section aria-labelledby="repeat-title"><h2 id="repeat-title">Repeat it</h2><p class="code">${visible(plan.command)}</p></section>`}
    </main></div>`;
}

/** Every layer with the number of its group, in the order of the model. */
function Layers({ plan, only, setOnly }) {
  const stages = [...new Set(plan.layers.map((layer) => layer[2]))];
  return html`<section aria-labelledby="layers-title"><h2 id="layers-title">${count(plan.layers.length, "layer")} in ${count(plan.groups.length, "group")}</h2>
    <p class="quiet">Layers of a group share one block table. In the order of the model; each shows the number of its group.</p>
    <div class="choices" role="group" aria-label="Pick out a group">${plan.groups.map((group, i) => html`<button key=${i} aria-pressed=${only === i} onClick=${() => setOnly(only === i ? -1 : i)}>
      <span class=${`sample-block ${groupClass(i)}`} style=${groupColor(i)} aria-hidden="true"></span>${i}: ${visible(group.keeps)} · ${count(group.layers, "layer")}</button>`)}</div>
    ${stages.map((stage) => {
      const layers = plan.layers.filter((layer) => layer[2] === stage);
      return html`<div key=${stage}>${stages.length > 1 && html`<h3 class="minor">stage ${stage}</h3>`}
        <div class="layers" role="img" aria-label=${`${count(layers.length, "layer")}; by group: ${layers.map((layer) => layer[1]).join(" ")}`}>${layers.map(([name, group]) => html`<span key=${name} class=${`layer ${groupClass(group)} ${only === group ? "chosen" : ""}`} style=${groupColor(group)} title=${`${visible(name)}: group ${group}, ${plan.groups[group].keeps}`}><b style=${groupColor(group)}>${group}</b></span>`)}</div></div>`;
    })}</section>`;
}

/** A part of a bar that holds nothing. */
const Empty = ({ part, whole, title }) => part > 0 && html`<span class="part empty" style=${wide(part, whole)} title=${`${title}: ${sizeText(part)}`}></span>`;

/** What a block id holds if a group has it: a page for each layer, padding, and room of larger groups. */
function BlockIds({ plan, only }) {
  const whole = plan.block_bytes;
  return html`<section aria-labelledby="block-title"><h2 id="block-title">What a block id holds</h2>
    <p class="quiet">A block id is the same ${sizeText(whole)} whichever group has it: a page for each layer. Crossed out: what holds nothing, since a page is padded or the group has fewer layers than others.</p>
    <div class="bars">${alikeGroups(plan).map((run) => {
      const [first, last] = run, group = plan.groups[first], layers = plan.layers.filter((layer) => layer[1] === first);
      const pages = sum(layers.map((layer) => layer[3])), held = sum(layers.map((layer) => layer[4]));
      const said = `${sizeText(held)} of ${sizeText(whole)} hold something; ${group.waste_bytes ? `${sizeText(group.waste_bytes)} (${percent(group.waste_bytes, whole)}) hold nothing` : "nothing is wasted"}`;
      return html`<div class=${`bar-row ${only >= first && only <= last ? "chosen" : ""}`} key=${first}><div class="bar-name"><b>${runName(run)}</b> ${visible(group.keeps)}: ${count(group.block_tokens, "token")} a block, ${count(group.layers, "page")}</div>
        <div class="stack" role="img" aria-label=${`${runName(run)}: ${said}`}>${layers.map(([name, , , page, holds]) => html`<span key=${name} class="part page" style=${wide(page, whole)} title=${`${visible(name)}: page of ${sizeText(page)}, ${sizeText(page - holds)} of it padding`}>
          <span class=${`part ${groupClass(first)}`} style=${{ ...groupColor(first), ...wide(holds, page) }}></span><${Empty} part=${page - holds} whole=${page} title="padding" /></span>`)}<${Empty} part=${whole - pages} whole=${whole} title="room that larger groups use" /></div>
        <div class="facts">${said}.</div></div>`;
    })}</div></section>`;
}

/** Requests of a length: how many fit, and what one holds of each group. */
function PlanRequests({ plan, at, setAt, only }) {
  const length = plan.lengths[at], blocks = plan.blocks[at], total = sum(blocks), times = plan.at_once[at];
  const wasted = sum(blocks.map((held, group) => held * plan.groups[group].waste_bytes));
  const words = `${count(length, "token")}: ${timesText(times)} at once`;
  return html`<section aria-labelledby="length-title"><h2 id="length-title">Requests of <output>${count(length, "token")}</output></h2>
    <div class="slide"><input type="range" min="0" max=${plan.lengths.length - 1} value=${at} aria-label="Length of a request" aria-valuetext=${words} onInput=${(event) => setAt(Number(event.target.value))} />
      <button onClick=${() => setAt(plan.planned)} disabled=${at === plan.planned}>as planned</button></div>
    <p class="big"><b>${timesText(times)}</b> at once${times >= 0 && times < 1 ? ": not even one fits" : ""}; one holds ${count(total, "block")}, ${sizeText(total * plan.block_bytes)}${wasted ? `, of which ${sizeText(wasted)} (${percent(wasted, total * plan.block_bytes)}) hold nothing` : ""}.</p>
    <${Growth} plan=${plan} at=${at} setAt=${setAt} />
    <div class="bars"><div class="bar-row"><div class="bar-name"><b>One request</b>, by group</div>
        <div class="stack" role="img" aria-label=${`One request of ${count(length, "token")}: ${blocks.map((held, group) => `group ${group} ${count(held, "block")}`).join(", ")}`}>${blocks.map((held, group) => html`<span key=${group} class=${`part edge ${only === group ? "chosen" : ""}`} style=${wide(held, total)} title=${`group ${group}: ${count(held, "block")}`}>
          <span class=${`part ${groupClass(group)}`} style=${{ ...groupColor(group), ...wide(plan.block_bytes - plan.groups[group].waste_bytes, plan.block_bytes) }}>${held > total / 16 && html`<b style=${groupColor(group)}>${group}</b>`}</span><${Empty} part=${held * plan.groups[group].waste_bytes} whole=${held * plan.block_bytes} title=${`group ${group}, holds nothing`} /></span>`)}</div></div>
      <${PlanPool} plan=${plan} blocks=${blocks} times=${times} only=${only} /></div>
    <div class="wide" tabindex="0" role="group" aria-label="One request, by group"><table><thead><tr>${["group", "keeps"].map((one) => html`<th key=${one} scope="col">${one}</th>`)}${["blocks", "of the request", "bytes", "of them hold nothing"].map((one) => html`<th key=${one} scope="col" class="num">${one}</th>`)}</tr></thead>
      <tbody>${blocks.map((held, group) => html`<tr key=${group} class=${only === group ? "chosen" : ""}><th scope="row">${group}</th><td>${visible(plan.groups[group].keeps)}</td><td class="num">${number.format(held)}</td><td class="num">${percent(held, total)}</td><td class="num">${sizeText(held * plan.block_bytes)}</td><td class="num">${sizeText(held * plan.groups[group].waste_bytes)}</td></tr>`)}</tbody></table></div></section>`;
}

/** The pool with as many whole requests as it holds. */
function PlanPool({ plan, blocks, times, only }) {
  const whole = plan.num_blocks, total = sum(blocks), many = times < 0 ? 0 : Math.floor(times + 1e-9);
  const free = Math.max(0, whole - 1 - many * total), one = many > MOST_DRAWN ? many : 1;
  const said = `the null block, ${count(many, "whole request")}, ${count(free, "block")} (${sizeText(free * plan.block_bytes)}) left over`;
  return html`<div class="bar-row"><div class="bar-name"><b>The pool</b>: ${count(whole, "block")}, ${sizeText(whole * plan.block_bytes)}</div>
    <div class="stack" role="img" aria-label=${`The pool: ${said}`}><span class="part null-block" style=${wide(1, whole)} title="the null block"></span>
      ${Array.from({ length: many / one }, (_, i) => html`<span key=${i} class="part whole-request" style=${wide(total * one, whole)} title=${one > 1 ? count(many, "request") : `request ${i + 1}`}>${blocks.map((held, group) => html`<span key=${group} class=${`part ${groupClass(group)} ${only === group ? "chosen" : ""}`} style=${{ ...groupColor(group), ...wide(held, total) }}></span>`)}</span>`)}</div>
    <div class="facts">It holds ${said}${one > 1 ? "; drawn by group, since they are many" : ""}.</div></div>`;
}

/** The memory of each kind of worker. */
function Memory({ plan }) {
  return html`<section aria-labelledby="memory-title"><h2 id="memory-title">The memory of ${plan.workers.length > 1 ? "the workers" : "a worker"}</h2>
    <div class="bars">${plan.workers.map(([name, memory, block]) => {
      const pool = plan.num_blocks * block, left = memory - pool;
      const said = `${sizeText(memory)}: ${sizeText(pool)} are blocks, of which the null block takes ${sizeText(block)}${left >= 0 ? `; ${sizeText(left)} are left over` : ", more than there is"}`;
      return html`<div class="bar-row" key=${name}><div class="bar-name"><b>worker ${name.replace("-", " to ")}</b>, ${sizeText(block)} a block id</div>
        <div class="stack" role="img" aria-label=${`worker ${name}: ${said}`}><span class="part null-block" style=${wide(block, Math.max(memory, pool))}></span><span class="part pool-part" style=${wide(pool - block, Math.max(memory, pool))}></span></div>
        <div class="facts">${said}.</div></div>`;
    })}</div></section>`;
}

/** What grows with the length of a request, as charts (chart.js) whose chosen point is the chosen length. */
function growthCharts(plan) {
  const axis = { x: "tokens of a request", log_x: true, log_y: true }, line = (name, ys) => ({ name, xs: plan.lengths, ys });
  const held = alikeGroups(plan).map((run) => line(`${runName(run)}: ${plan.groups[run[0]].keeps}`, plan.blocks.map((blocks) => blocks[run[0]])));
  const all = line("all groups", plan.blocks.map(sum)), bounded = plan.at_once.every((times) => times >= 0);
  const fits = bounded ? [line("at once", plan.at_once)] : [], one = plan.at_once.some((times) => times < 1) ? [line("one request", plan.lengths.map(() => 1))] : [];
  return [
    { ...axis, title: "How many requests fit", y: "requests at once", series: [...fits, ...(bounded ? one : [])] },
    { ...axis, title: "What one request holds", y: "blocks", series: held.length > 1 ? [all, ...held] : [all] },
  ];
}

const Growth = ({ plan, at, setAt }) => html`<div class="charts">${useMemo(() => growthCharts(plan), [plan]).map((chart, i) => html`<${GrowthChart} key=${i} chart=${chart} plan=${plan} at=${at} setAt=${setAt} id=${`growth-${i}`} />`)}</div>`;

function GrowthChart({ chart, plan, at, setAt, id }) {
  const [box, width] = useWidth(), x = plan.lengths[at];
  return html`<figure class="chart" aria-labelledby=${id} ref=${box}><figcaption><h3 id=${id}>${chart.title}</h3></figcaption>
    <${Plot} chart=${chart} places=${plan.lengths} width=${width} at=${at} choose=${setAt} />
    <div class="read"><ul aria-label="Lines">${chart.series.map((line, i) => html`<li key=${i}><${Sample} index=${i} />${visible(line.name)} <b>${said(valueAt(line, x, false))}</b></li>`)}</ul></div></figure>`;
}
