// Words, names and colours that all views share.

const { h, render, Fragment } = preact;
const { useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback } = preactHooks;
const html = htm.bind(h);

/** What a reader has chosen, by name: it stays when a view is left and comes back, and when a live page loads itself again. */
const kept = (typeof before === "undefined" ? {} : before.kept) || {};
function useKept(name, first) {
  const [value, set] = useState(name in kept ? kept[name] : first);
  return [value, (next) => { kept[name] = next; set(next); }];
}

const number = new Intl.NumberFormat("en-US");
const count = (n, noun, several) => `${number.format(n)} ${n === 1 ? noun : several || `${noun}s`}`;

/** Text from a trace, with what could change the order or look of other text made visible. */
function visible(text) {
  return String(text).replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g,
    (c) => `[U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}]`,
  );
}

const short = (text, most = 14) => {
  const shown = [...visible(text)];
  return shown.length > most ? `${shown.slice(0, most - 1).join("")}…` : shown.join("");
};

// Owners have a colour and a letter, so neither has to be told apart from the others alone. Text on them is dark.
const PALETTE = ["#8ec9ea", "#f3c659", "#93d3ae", "#eaa7cd", "#c3b2ea", "#f2a988", "#bcd66e", "#9db7e6", "#d9c3a0", "#7fd0cf"];
const INK = "#15171a";
const ownerColor = (request) => PALETTE[request % PALETTE.length];

/** A mark of a few letters for a request: its name if that is short, else a letter for its number. */
function ownerMark(trace, request) {
  const name = visible(trace.requests[request] ?? "?");
  if ([...name].length <= 3) return name;
  const letter = (n) => (n < 26 ? "" : letter(Math.floor(n / 26) - 1)) + String.fromCharCode(65 + (n % 26));
  return letter(request);
}

/** Pictures for buttons: paths in a square of 12. */
const ICONS = { start: "M2 2h2v8H2zM10 2v8L4.5 6z", back: "M8.5 2v8L3 6z", play: "M3 1.5v9L10.5 6z", pause: "M2.5 2h2.6v8H2.5zM6.9 2h2.6v8H6.9z", on: "M3.5 2v8L9 6z", end: "M8 2h2v8H8zM2 2v8l5.5-4z" };
const Icon = ({ name }) => html`<svg viewBox="0 0 12 12" width="12" height="12" aria-hidden="true"><path d=${ICONS[name]} fill="currentColor" /></svg>`;

const nodeText = (trace, node) => {
  const [, tokens, keys] = trace.nodes[node];
  const shown = tokens.length > 12 ? `${tokens.slice(0, 10).join(" ")} … (${tokens.length})` : tokens.join(" ");
  return keys ? `${shown} · ${visible(keys)}` : shown;
};

/** True if this side does not show this field of its state: then nothing stands for it, and nothing is compared with it. */
const hides = (trace, index, name) => (trace.sides[index]?.hidden || []).includes(name);

/** What a block is, in words: [kind, text]. Kinds: null, free, candidate, used, outside, missing. */
function blockWords(trace, side, block, index) {
  if (block === 0) return ["null", "the null block, which stands for what is skipped"];
  if (block >= trace.num_blocks || block < 0) return ["missing", "no block of this pool"];
  const registered = side.label[block] >= 0;
  const content = registered ? `, registered as content ${side.label[block]}` : "";
  const held = side.holders(block);
  if (held.length) {
    const [request, group, entry] = held[0];
    const more = held.length > 1 ? ` and ${held.length - 1} more` : "";
    const who = `${visible(trace.requests[request])}, group ${group}, entry ${entry}${more}`;
    return ["used", `held by ${who}${content}`];
  }
  if (side.ref[block] > 0) return ["outside", `held by an outside holder or set aside${content}`];
  if (hides(trace, index, "tables") && hides(trace, index, "ref_cnt")) return ["free", "held or not: that is hidden"];
  if (hides(trace, index, "labels")) return ["free", "in no table; whether it still holds a content is hidden"];
  return registered
    ? ["candidate", `free, and still registered as content ${side.label[block]}: an eviction candidate`]
    : ["free", "free, without content"];
}

/** The lines of a change, for a reader; `without` names fields of a state that are left out. */
function changeLines(trace, change, without = new Set()) {
  const lines = [], of = (name, value) => (without.has(name) ? undefined : value);
  for (const edit of [...(of("free", of("free_order", change.queue)) || [])].reverse()) {
    const [place, gone, ...rest] = edit;
    const [ids] = unpacked(rest, 0);
    const where = place === 0 ? "at the front of the free queue" : `at place ${number.format(place)} of the free queue`;
    if (gone) lines.push(`${count(gone, "block leaves", "blocks leave")} ${where}`);
    if (ids.length) lines.push(`${idsText(trace, ids)} ${ids.length === 1 ? "comes" : "come"} ${where}`);
  }
  for (const row of of("tables", change.tables) || []) {
    const [group, request, length] = row;
    const head = `${visible(trace.requests[request])}, group ${group}`;
    if (length < 0) lines.push(`${head}: the table is gone`);
    else if (row.length === 3) lines.push(`${head}: ${count(length, "entry", "entries")} left`);
    for (const [first, ids] of length < 0 ? [] : runsOf(row)) {
      const last = first + ids.length - 1;
      const entries = ids.length === 1 ? `entry ${first} is` : `entries ${first} to ${last} are`;
      lines.push(`${head}: ${entries} ${ids.every((id) => id === 0) ? "null" : idsText(trace, ids)}`);
    }
  }
  lines.push(...pairLines(of("ref_cnt", change.ref), (b, n) => `block ${b}: ${count(n, "reference")}`));
  lines.push(...pairLines(of("labels", change.label), (b, l) => (l < 0 ? `block ${b} forgets its content` : `block ${b} is registered as content ${l}`)));
  const counts = of("registered", change.registered) || [];
  for (let i = 0; i < counts.length; i += 3) {
    const head = `${visible(trace.requests[counts[i + 1]])}, group ${counts[i]}`;
    lines.push(counts[i + 2] < 0 ? `${head}: no longer running` : `${head}: ${counts[i + 2]} leading entries count as registered`);
  }
  for (const [name, text] of Object.entries(change.small || {}).filter(([name]) => !without.has(name))) lines.push(`${SMALL[name] || name}: ${name === "usage" ? Number(text).toFixed(3) : clipped(visible(text))}`);
  return lines;
}

/** What a step copies. */
function copyLines(one) {
  const lines = [], copies = one.copies || [];
  for (let i = 0; i < copies.length; i += 2) lines.push(`block ${copies[i]} is copied into block ${copies[i + 1]}; both are held until the copy has run`);
  return lines;
}

/** The names of a block that has several, or one of a part of it. */
function nameWords({ count: names, covers, size }) {
  const part = covers < size ? `${names > 1 ? "the first of them" : "it"} covers ${covers} of its ${size} tokens` : `${names > 1 ? "the first of them" : "it"} covers all of its ${size} tokens`;
  return `It has ${count(names, "name")}: ${part}.`;
}

const clipped = (text, most = 120) => (text.length > most ? `… ${text.slice(-most)}` : text); // what is new stands last

const SMALL = {
  num_free: "free blocks",
  usage: "usage",
  num_identities: "contents that a lookup can find",
  events: "events not drained",
  new_block_ids: "new block ids not drained",
  stats: "statistics not drained",
};

function pairLines(pairs = [], say, most = 12) {
  const lines = [];
  for (let i = 0; i < pairs.length && lines.length < most; i += 2) lines.push(say(pairs[i], pairs[i + 1]));
  if (pairs.length > 2 * most) lines.push(`… and ${number.format(pairs.length / 2 - most)} more blocks`);
  return lines;
}

function idsText(trace, ids) {
  const shown = ids.slice(0, 10).map((id) => (id < trace.num_blocks ? id : "? (none of this pool)")).join(", ");
  return ids.length === 1 ? `block ${shown}` : `blocks ${shown}${ids.length > 10 ? ` … (${number.format(ids.length)})` : ""}`;
}
