// Block tables with the window of the next query, the tokens of requests, and the tree of contents.

const MOST_ENTRIES = 96, FEW_ENTRIES = 36, MANY_REQUESTS = 6; // shown of a table, the second number with many requests

/** The entries that the query behind the computed tokens reads: [first, last]. */
function readEntries(trace, group, state) {
  const size = trace.groups[group].tokens, kind = trace.groups[group].kind;
  if (kind === "cross") return [0, Infinity];
  if (state.computed === 0) return [0, -1];
  const last = kind === "mamba" ? state.computed - 1 : state.computed;
  return [Math.floor(state.reads[group] / size), Math.floor(last / size)];
}

function Tables({ trace, now, step, selected, onSelect, place }) {
  const requests = [...now.requests.states.keys()];
  if (!requests.length) return html`<p class="quiet">No request is there.</p>`;
  const kinds = now.sides.length;
  return html`${requests.map((request) => {
    const state = now.requests.states.get(request);
    return html`<section class=${`request ${trace.steps[step]?.request === request ? "named" : ""}`} key=${request} id=${`request-${request}`} aria-label=${`Request ${visible(trace.requests[request])}`}>
      <h3><span class="swatch" style=${{ background: ownerColor(request) }} aria-hidden="true">${ownerMark(trace, request)}</span>
        <bdi>${short(trace.requests[request], 40)}</bdi>
        <span class="facts">${requestFacts(state)}${now.requests.junctions.get(request) ? html`<span class="junction">, shared prefix goes on at ${number.format(now.requests.junctions.get(request))}</span>` : ""}</span></h3>
      <${Tokens} trace=${trace} now=${now} request=${request} state=${state} wrong=${place && place.request === request ? place.position ?? -1 : -1} />
      ${!now.sides.some((side) => side.tables.some((rows) => rows.has(request))) ? html`<p class="quiet">${trace.sides.every((_, i) => hides(trace, i, "tables")) ? "What it holds is hidden." : "It holds no block."}</p>` : trace.groups.map((words, group) => {
        const rows = now.sides.map((side) => side.tables[group].get(request));
        const hidden = trace.sides.some((_, i) => hides(trace, i, "tables"));
        const same = kinds < 2 || !behind(trace, step, kinds) || (!hidden && sameTable(rows[0], rows[1]));
        const shown = same ? [kinds - 1] : [0, 1];
        return html`<div class="group" key=${group}>
          <div class="who"><b>group ${group}</b> ${words.words}</div>
          ${shown.map((i) => html`<${TableRow} key=${i} trace=${trace} side=${now.sides[i]} index=${i} other=${same || hidden ? null : rows[1 - i]}
              request=${request} group=${group} state=${state} selected=${selected} onSelect=${onSelect} name=${same ? "" : trace.sides[i].role} place=${place}
              most=${requests.length > MANY_REQUESTS ? FEW_ENTRIES : MOST_ENTRIES} />`)}
        </div>`;
      })}
    </section>`;
  })}`;
}

/** True if both sides went as far as this step. */
const behind = (trace, step, kinds) => kinds > 1 && step < trace.sides[0].steps.length && step < trace.sides[1].steps.length;
const sameTable = (a, b) => a === b || (a && b && a.length === b.length && a.every((block, i) => block === b[i]));

function requestFacts(state) {
  const facts = [`${number.format(state.computed)} of ${count(state.known, "token")} computed`];
  if (state.scheduled) facts.push(`${number.format(state.scheduled)} in the running step`);
  if (state.attached) facts.push(`began with a hit of ${number.format(state.attached)}`);
  else if (state.hit >= 0) facts.push(state.hit ? `its lookup found ${count(state.hit, "token")}` : "its lookup found nothing");
  if (state.arriving) facts.push("waits for external tokens");
  if (state.preemptions) facts.push(`preempted ${count(state.preemptions, "time")}`);
  return facts.join(" · ");
}

function TableRow({ trace, side, index, other, request, group, state, selected, onSelect, name, place, most }) {
  const table = side.tables[group].get(request);
  const [all, setAll] = useState(false);
  // Drawn again only where something has changed: there may be thousands of entries on the page.
  const chosen = table && table.includes(selected) ? selected : -1;
  const parts = [table, other, all, chosen, name, place, side.stamps.label, side.registered[group].get(request), state.computed, state.attached, trace, most];
  return useMemo(() => tableRow({ trace, side, index, other, request, group, state, selected, onSelect, name, place, most, table, all, setAll }), parts);
}

function tableRow({ trace, side, index, other, request, group, state, selected, onSelect, name, place, most, table, all, setAll }) {
  if (!table) return html`<div class="row">${name && html`<span class="side">${visible(name)}</span>`}<span class="quiet">${hides(trace, index, "tables") ? "hidden" : "no table"}</span></div>`;
  const size = trace.groups[group].tokens, [from, to] = readEntries(trace, group, state);
  const registered = side.registered[group].get(request) || 0;
  const cut = !all && table.length > most, pairs = (first, end) => table.slice(first, end).map((block, i) => [block, first + i]);
  const shown = cut ? [...pairs(0, most / 4), null, ...pairs(table.length - (most / 4) * 3, table.length)] : pairs(0, table.length);
  // The place of a finding is shown, wherever it is.
  const hidden = cut && place && place.request === request && place.group === group && place.entry >= most / 4 && place.entry < table.length - (most / 4) * 3;
  if (hidden) shown.splice(most / 4 + 1, 0, ...pairs(place.entry, place.entry + 1), null);
  const cell = ([block, entry]) => {
    const isRead = entry >= from && entry <= to, hit = (entry + 1) * size <= state.attached;
    const differs = other && other[entry] !== block;
    const isPlace = place && place.request === request && place.group === group && place.entry === entry && index === trace.sides.length - 1;
    const has = block > 0 && side.label[block] >= 0;
    const said = [`entry ${entry}, tokens ${entry * size} to ${entry * size + size - 1}`, block === 0 ? "∅ null: skipped" : block < trace.num_blocks ? `block ${block}` : "no block of this pool"];
    if (hit) said.push("from the hit");
    if (has) said.push(entry < registered ? "registered" : "carries a content");
    if (isRead) said.push("read by the next query");
    if (differs) said.push("differs");
    const classes = ["cell", block === 0 ? "null" : "", isRead ? "read" : "", entry === from && isRead ? "from" : "", hit ? "hit" : "", has ? "registered" : "", differs ? "differs" : "", isPlace ? "place" : "", block === selected && block > 0 ? "chosen" : ""];
    return html`<button key=${entry} class=${classes.filter(Boolean).join(" ")} title=${said.join(", ")} aria-label=${said.join(", ")}
      data-entry=${differs ? `${entry} ≠` : entry} onClick=${() => onSelect(block)}>${block === 0 ? "∅" : block >= trace.num_blocks ? "?" : block}</button>`;
  };
  return html`<div class="row">${name && html`<span class="side">${visible(name)}</span>`}
    <div class="cells">${shown.map((pair, i) => (pair ? cell(pair) : html`<button class="more" key=${`more-${i}`} onClick=${() => setAll(true)}>${i > most / 4 ? "more" : `${number.format(table.length - most)} more`}</button>`))}
    ${table.length === 0 && html`<span class="quiet">empty</span>`}</div></div>`;
}

/** The tokens of a request: those computed, those of the running step, those that wait. */
function Tokens({ trace, now, request, state, wrong }) {
  const known = now.requests.tokens.get(request);
  return useMemo(() => tokenLine({ trace, now, request, state, wrong }), [known, state.known, state.computed, state.scheduled, state.attached, wrong]);
}

function tokenLine({ trace, now, request, state, wrong }) {
  const tokens = (now.requests.tokens.get(request) || []).slice(0, state.known), most = 120, size = trace.hash_block_size;
  const first = Math.max(0, tokens.length - most);
  const kind = (at) => (at < state.attached ? "from-hit" : at < state.computed ? "computed" : at < state.computed + state.scheduled ? "running" : "waiting");
  const parts = [];
  for (let at = first; at < tokens.length; ) {
    let end = at;
    while (end < tokens.length && kind(end) === kind(at)) end++;
    parts.push([kind(at), at, end]);
    at = end;
  }
  if (!tokens.length) return null;
  return html`<p class="tokens"><span class="lead">tokens</span>${first > 0 && html`<span class="quiet">${number.format(first)} before · </span>`}
    ${wrong >= 0 && html`<span class="at-fault"><span aria-hidden="true">✗ </span>position ${wrong}</span>`}
    ${parts.map(([what, from, to]) => html`<span class=${`run ${what}`} key=${from}><span class="what">${TOKEN_WORDS[what]}</span>
      ${tokens.slice(from, to).map((token, i) => html`<span key=${i} class=${`${(from + i) % size === 0 && from + i > 0 ? "edge" : ""} ${from + i === wrong ? "wrong" : ""}`} title=${from + i === wrong ? `position ${wrong}: here is what was found` : undefined}>${token}</span>`)}</span>`)}</p>`;
}

const TOKEN_WORDS = { "from-hit": "hit", computed: "computed", running: "running", waiting: "waiting" };

/** The tree of contents: what each hash block holds, which requests have it, which blocks carry it. */
function Contents({ trace, now, selected, onSelect }) {
  const side = now.sides[now.sides.length - 1];
  return useMemo(() => contentTree({ trace, now, side, selected, onSelect }), [trace, now.requests.stamp, side.stamps.label, selected]);
}

function contentTree({ trace, now, side, selected, onSelect }) {
  const users = new Map(), blocks = new Map(), wanted = new Set();
  for (const [request, chain] of now.requests.chains) for (const node of chain) {
    wanted.add(node);
    if (!users.has(node)) users.set(node, []);
    users.get(node).push(request);
  }
  for (let block = 1; block < side.label.length; block++) {
    const named = side.label[block] >= 0 && side.content.get(side.label[block]);
    if (!named) continue;
    wanted.add(named[1]);
    if (!blocks.has(named[1])) blocks.set(named[1], []);
    blocks.get(named[1]).push([named[0], block]);
  }
  for (const node of [...wanted]) for (let up = trace.nodes[node][0]; up >= 0 && !wanted.has(up); up = trace.nodes[up][0]) wanted.add(up);
  if (!wanted.size) return html`<p class="quiet">No full block of a request has a content yet${trace.nodes.length ? "" : "; with caching off none is named"}.</p>`;
  const children = new Map();
  for (const node of [...wanted].sort((a, b) => a - b)) {
    const up = trace.nodes[node][0];
    if (!children.has(up)) children.set(up, []);
    children.get(up).push(node);
  }
  let room = 200;
  const branch = (node, depth) => {
    if (room-- < 0) return null;
    const held = blocks.get(node) || [], who = users.get(node) || [];
    // A chain without forks is told line by line, not deeper and deeper.
    const next = children.get(node) || [];
    const size = trace.hash_block_size;
    const line = html`<div class=${`node ${held.length ? "" : "unregistered"}`}>
      <span class="at" title="tokens">${depth ? "↳ " : ""}${depth * size}–${depth * size + size - 1}</span>
      <code>${nodeText(trace, node)}</code>
      ${who.map((request) => html`<span key=${request} class="swatch small" style=${{ background: ownerColor(request) }} title=${visible(trace.requests[request])}>${ownerMark(trace, request)}</span>`)}
      ${held.map(([group, block]) => html`<button key=${`${group}-${block}`} class=${`chip tiny ${block === selected ? "chosen" : ""}`} onClick=${() => onSelect(block)} title=${`block ${block} of group ${group}`}>g${group}: ${block}</button>`)}
      ${!held.length && html`<span class="quiet">${hides(trace, trace.sides.length - 1, "labels") ? "registered or not: hidden" : "not registered"}</span>`}</div>`;
    return next.length === 1
      ? html`<${Fragment} key=${node}>${line}${branch(next[0], depth + 1)}</${Fragment}>`
      : html`<${Fragment} key=${node}>${line}${next.length > 0 && html`<ul>${next.map((one) => html`<li key=${one}>${branch(one, depth + 1)}</li>`)}</ul>`}</${Fragment}>`;
  };
  return html`<ul class="tree">${(children.get(-1) || []).map((node) => html`<li key=${node}>${branch(node, 0)}</li>`)}</ul>
    ${room < 0 && html`<p class="quiet">More contents than are listed here.</p>`}`;
}
