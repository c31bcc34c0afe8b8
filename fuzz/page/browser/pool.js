// The pool as a grid of blocks on a canvas, and the free queue as a strip.

const BIG = 16; // from this size on a cell shows its mark

/** Size of a cell and columns, so that a pool of any size fits the width; large pools scroll. */
function gridOf(numBlocks, width) {
  for (const size of [38, 30, 24, 18, 14, 11, 9, 7, 6, 5, 4, 3]) {
    const columns = Math.max(1, Math.floor(width / size));
    if (Math.ceil(numBlocks / columns) * size <= 300 || size === 3) return { size, columns, rows: Math.ceil(numBlocks / columns) };
  }
}

/** A colour of the theme that is shown; asking for it is slow, so it is asked for once. */
const cssColor = (name) => {
  const theme = document.documentElement.dataset.theme, key = `${theme} ${name}`;
  if (!colors.has(key)) colors.set(key, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return colors.get(key);
};
const colors = new Map();

function Pool({ trace, side, other, index, step, names, selected, onSelect, theme }) {
  const canvas = useRef();
  const frame = useRef();
  const [width, setWidth] = useState(600);
  useLayoutEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    watch.observe(frame.current);
    return () => watch.disconnect();
  }, []);
  const grid = gridOf(trace.num_blocks, width);
  const apart = useMemo(() => differing(trace, side, other), [trace, side, other, step]);
  useLayoutEffect(() => {
    drawPool(canvas.current, grid, trace, side, apart, changeAt(trace, index, step), selected);
    drawNames(canvas.current, grid, names || new Map(), trace.steps[step]?.copies || []);
  }, [width, step, selected, theme, trace, index]);
  useEffect(() => {
    if (selected < 0 || !grid) return;
    const y = Math.floor(selected / grid.columns) * grid.size, box = frame.current;
    if (y < box.scrollTop || y + grid.size > box.scrollTop + box.clientHeight) box.scrollTop = y - box.clientHeight / 2;
  }, [selected, width]);
  const at = (event) => {
    const box = canvas.current.getBoundingClientRect();
    const block = Math.floor((event.clientY - box.top) / grid.size) * grid.columns + Math.floor((event.clientX - box.left) / grid.size);
    return block >= 0 && block < trace.num_blocks ? block : -1;
  };
  const keys = (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -grid.columns, ArrowDown: grid.columns }[event.key];
    if (by === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    onSelect(Math.min(trace.num_blocks - 1, Math.max(0, (selected < 0 ? 0 : selected) + (selected < 0 ? 0 : by))));
  };
  const name = trace.sides[index].name;
  return html`<div class="pool" ref=${frame} tabindex="0" role="group" aria-roledescription="pool of blocks"
      aria-label=${`Pool of ${visible(name)}: ${poolWords(trace, side, index)}. Arrow keys choose a block.`} onKeyDown=${keys}>
    <canvas ref=${canvas} class="grid" aria-hidden="true" onClick=${(event) => onSelect(at(event))} />
  </div>`;
}

/** How many blocks are in use, free, and candidates. */
function poolCounts(trace, side) {
  if (side.counted?.stamp === side.stamps.counts) return side.counted;
  let used = 0, candidates = 0, shared = 0;
  for (let block = 1; block < trace.num_blocks; block++) {
    if (side.ref[block] > 0) used++;
    else if (side.label[block] >= 0) candidates++;
    if (side.ref[block] > 1) shared++;
  }
  side.counted = { stamp: side.stamps.counts, used, candidates, shared, free: trace.num_blocks - 1 - used - candidates };
  return side.counted;
}

function poolWords(trace, side, index) {
  const { used, candidates, shared, free } = poolCounts(trace, side), hidden = (name) => hides(trace, index, name);
  const more = shared ? ` (${number.format(shared)} shared)` : "";
  if (hidden("ref_cnt") && hidden("tables")) return "which blocks are in use is hidden";
  const how = hidden("ref_cnt") ? ", counted from the tables since references are hidden" : "";
  if (hidden("labels")) return `${number.format(used)} in use${more}${how}, ${number.format(candidates + free)} not; what they hold is hidden`;
  return `${number.format(used)} in use${more}${how}, ${number.format(candidates)} free with content, ${number.format(free)} free without`;
}

const changeAt = (trace, index, step) => (step < 0 ? undefined : trace.sides[index].steps[step]);

function changedBlocks(change) {
  const blocks = new Set();
  for (const name of ["ref", "label"]) for (let i = 0; i < (change?.[name] || []).length; i += 2) blocks.add(change[name][i]);
  return blocks;
}

/** Says of a block whether the other side shows something else of it; what either of them hides is not compared. */
function differing(trace, side, other) {
  if (!other) return () => false;
  const hidden = (name) => trace.sides.some((_, i) => hides(trace, i, name));
  const fields = [["ref", "ref_cnt"], ["label", "labels"], ["first", "earliest"]].filter(([, name]) => !hidden(name)).map(([field]) => field);
  const ours = side.owners(), theirs = other.owners(), tables = !hidden("tables");
  return (block) => fields.some((field) => other[field][block] !== side[field][block]) || (tables && theirs[block] !== ours[block]);
}

function drawPool(canvas, grid, trace, side, differs, change, selected) {
  const { size, columns, rows } = grid, ratio = window.devicePixelRatio || 1, cell = Math.round(size * ratio), scale = cell / size;
  const small = size < 9, pen = canvas.getContext("2d");
  if (!small || canvas.width !== columns * cell || canvas.height !== rows * cell) { // this clears it
    DRAWN.delete(canvas);
    canvas.width = columns * cell;
    canvas.height = rows * cell;
    canvas.style.width = `${columns * size}px`;
    canvas.style.height = `${rows * size}px`;
  }
  const look = { line: cssColor("--line-strong"), soft: cssColor("--free"), ink: cssColor("--ink"), bad: cssColor("--bad"), mark: cssColor("--accent"), used: cssColor("--outside"), panel: cssColor("--panel") };
  const owners = side.owners(), changed = changedBlocks(change);
  const at = (block) => [(block % columns) * size, Math.floor(block / columns) * size];
  pen.setTransform(1, 0, 0, 1, 0, 0);
  const drawn = small && drawPixels(pen, { cell, columns, rows }, trace, side, owners, differs, look);
  pen.scale(scale, scale);
  for (let block = 0; !small && block < trace.num_blocks; block++) {
    const [x, y] = at(block), owner = owners[block];
    bigCell(pen, x, y, size, { trace, block, owner, held: owner >= 0 || side.ref[block] > 0, registered: side.label[block] >= 0, references: side.ref[block] }, look);
    if (!differs(block)) continue;
    pen.fillStyle = owner >= 0 ? BAD : look.bad;
    pen.beginPath();
    pen.moveTo(x + size - 1, y + 1);
    pen.lineTo(x + size - 1, y + size * 0.45);
    pen.lineTo(x + size * 0.55, y + 1);
    pen.fill();
  }
  const framed = size >= 5 ? [...changed] : [];
  for (const block of framed) outline(pen, ...at(block), size, look.ink, 1.5);
  if (drawn) for (const block of selected >= 0 ? [...framed, selected] : framed) drawn.framed.add(Math.floor(block / columns));
  if (selected >= 0) {
    const [x, y] = at(selected), grow = size < 9 ? 3 : 0; // a small cell gets its frame around it
    outline(pen, x - grow, y - grow, size + 2 * grow, look.mark, Math.max(2, size / 10));
  }
}

const BAD = "#b3261e"; // on the colour of an owner, which is light in both themes
/** Over a pool of large cells: how much of a block its first name covers, how many names it has, and what is copied where. */
function drawNames(canvas, { size, columns }, names, copies) {
  if (size < 9) return;
  const pen = canvas.getContext("2d"), ink = cssColor("--ink"), mark = cssColor("--accent");
  const at = (block) => [(block % columns) * size, Math.floor(block / columns) * size];
  for (const [block, { count: several, covers, size: tokens }] of names) {
    const [x, y] = at(block), wide = size - 6;
    pen.fillStyle = ink;
    if (covers < tokens) {
      pen.globalAlpha = 0.25;
      pen.fillRect(x + 3, y + size - 5, wide, 2.5);
      pen.globalAlpha = 1;
      pen.fillRect(x + 3, y + size - 5, (wide * covers) / tokens, 2.5);
    }
    if (several > 1 && size >= BIG) {
      pen.textBaseline = "top";
      pen.font = "600 8px ui-monospace, monospace";
      pen.fillText(`×${several}`, x + size - 13, y + 2.5);
    }
  }
  pen.strokeStyle = pen.fillStyle = mark;
  pen.lineWidth = 2;
  for (let i = 0; i + 1 < copies.length; i += 2) {
    const [from, to] = [at(copies[i]), at(copies[i + 1])].map(([x, y]) => [x + size / 2, y + size / 2]);
    const bend = [(from[0] + to[0]) / 2, (from[1] + to[1]) / 2 + size * 0.7]; // so that two in one row are told apart
    const turn = Math.atan2(to[1] - bend[1], to[0] - bend[0]), tip = Math.max(4, size / 4);
    for (const block of copies.slice(i, i + 2)) pen.strokeRect(at(block)[0] + 1, at(block)[1] + 1, size - 3, size - 3);
    pen.beginPath();
    pen.moveTo(...from);
    pen.quadraticCurveTo(...bend, ...to);
    pen.stroke();
    pen.beginPath();
    pen.moveTo(...to);
    for (const side of [-0.4, 0.4]) pen.lineTo(to[0] - tip * Math.cos(turn + side), to[1] - tip * Math.sin(turn + side));
    pen.fill();
  }
}

const DRAWN = new WeakMap(); // per canvas of small cells, what stands on it
const DIFFERS = 1, NULL = 2, FREE = 3, OUTSIDE = 4, OWNED = 5, CANDIDATE = 64; // what a small cell shows

/** Cells of a few pixels, written as pixels: only those that look otherwise than before, and what frames have covered. */
function drawPixels(pen, { cell, columns, rows }, trace, side, owners, differs, look) {
  const key = [cell, columns, rows, ...Object.values(look)].join(), width = columns * cell;
  let drawn = DRAWN.get(pen.canvas), from = rows, to = -1;
  if (drawn?.key !== key) {
    const image = pen.createImageData(width, rows * cell), pixels = new Uint32Array(image.data.buffer);
    pixels.fill(asPixel(look.panel));
    drawn = { key, image, pixels, cells: new Uint8Array(trace.num_blocks), framed: new Set([0, rows - 1]), inks: [] };
    [drawn.inks[DIFFERS], drawn.inks[NULL], drawn.inks[FREE], drawn.inks[OUTSIDE]] = [look.bad, look.line, look.soft, look.used].map(asPixel);
    PALETTE.forEach((color, i) => { drawn.inks[OWNED + i] = asPixel(color); });
    DRAWN.set(pen.canvas, drawn);
  }
  const { cells, pixels, inks } = drawn, inner = cell > 4 ? cell - 1 : cell, half = Math.ceil(inner / 2), ink = asPixel(look.line);
  for (let block = 0; block < trace.num_blocks; block++) {
    const owner = owners[block], held = owner >= 0 || side.ref[block] > 0;
    let code = differs(block) ? DIFFERS : block === 0 ? NULL : owner >= 0 ? OWNED + (owner % PALETTE.length) : held ? OUTSIDE : FREE;
    if (!held && block && side.label[block] >= 0) code |= CANDIDATE;
    if (cells[block] === code) continue;
    cells[block] = code;
    const row = Math.floor(block / columns), left = (row * width + (block % columns)) * cell;
    for (let y = 0; y < inner; y++)
      for (let x = 0; x < inner; x++) pixels[left + y * width + x] = code & CANDIDATE && y < half && x < half ? ink : inks[code & ~CANDIDATE];
    if (row < from) from = row;
    if (row > to) to = row;
  }
  for (const row of drawn.framed) [from, to] = [Math.min(from, row - 2), Math.max(to, row + 2)]; // a frame reaches over its cell
  drawn.framed.clear();
  if (to >= from) pen.putImageData(drawn.image, 0, 0, 0, Math.max(0, from) * cell, width, (Math.min(rows - 1, to) - Math.max(0, from) + 1) * cell);
  return drawn;
}

/** A colour as a pixel of an image. */
function asPixel(color) {
  if (!pixelOf.has(color)) {
    const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    probe.fillStyle = color;
    probe.fillRect(0, 0, 1, 1);
    pixelOf.set(color, new Uint32Array(probe.getImageData(0, 0, 1, 1).data.buffer)[0]);
  }
  return pixelOf.get(color);
}
const pixelOf = new Map();

function outline(pen, x, y, size, color, width) {
  pen.strokeStyle = color;
  pen.lineWidth = width;
  pen.strokeRect(x + width / 2, y + width / 2, size - 1 - width, size - 1 - width);
}

function bigCell(pen, x, y, size, { trace, block, owner, held, registered, references }, look) {
  const inner = size - 2;
  pen.fillStyle = held ? (owner >= 0 ? ownerColor(owner) : look.used) : look.soft;
  pen.fillRect(x + 0.5, y + 0.5, inner, inner);
  pen.strokeStyle = look.line;
  pen.lineWidth = 1;
  if (!held && registered) pen.setLineDash([3, 2]);
  pen.strokeRect(x + 0.5, y + 0.5, inner, inner);
  pen.setLineDash([]);
  const dark = held && owner >= 0 ? INK : look.ink;
  if (block === 0) {
    pen.beginPath();
    pen.moveTo(x + 2, y + 2);
    pen.lineTo(x + inner - 1, y + inner - 1);
    pen.moveTo(x + inner - 1, y + 2);
    pen.lineTo(x + 2, y + inner - 1);
    pen.stroke();
  } else if (registered) {
    pen.fillStyle = pen.strokeStyle = dark;
    pen.beginPath();
    pen.arc(x + size - Math.max(4, size / 6) - 1, y + size - Math.max(4, size / 6) - 1, Math.max(1.5, size / 13), 0, 7);
    if (held) pen.fill();
    else pen.stroke();
  }
  if (size < BIG || block === 0) return;
  pen.fillStyle = dark;
  pen.textBaseline = "top";
  pen.font = `${size >= 30 ? 10 : 8}px ui-monospace, monospace`;
  pen.fillText(String(block), x + 3, y + 2.5);
  if (held && size >= 24) {
    pen.font = `600 ${size >= 30 ? 13 : 10}px ui-sans-serif, system-ui, sans-serif`;
    const mark = owner >= 0 ? ownerMark(trace, owner) : "ext";
    pen.fillText(references > 1 ? `${mark}+${references - 1}` : mark, x + 3, y + size / 2 - 1, size - (registered ? 12 : 6));
  }
}

/** The free queue as it was and as it is, in one row: [kind, block, place]. Kinds: `stays`, `gone`, `came`; a block that
    has moved in it is `gone` at the one place and `came` at the other. `place` is that in the queue as it is. */
function queueRow(queue, before, change, most) {
  const row = [], edits = [...((before && change?.queue) || [])].reverse();
  const stays = (from, to, shift) => { for (let i = from; i < to; i++) row.push(["stays", before[i], i + shift]); };
  const few = (ids) => (ids.length > most ? [...ids.slice(0, most / 2), ...ids.slice(-most / 2)] : [...ids]);
  if (!edits.length || queue.length > 4 * most) { // of a long queue the ends, with what came and left there
    const came = new Set(edits.flatMap(([, , ...rest]) => unpacked(rest, 0)[0]));
    const of = (from, to) => [...queue.subarray(from, to)].map((block, i) => [came.has(block) ? "came" : "stays", block, from + i]);
    const left = edits.flatMap(([place, gone]) => [...before.subarray(place, place + Math.min(gone, most))]).filter((block) => !came.has(block));
    return [...few(left).map((block) => ["gone", block, -1]), ...(queue.length > most ? [...of(0, most / 2), null, ...of(queue.length - most / 2, queue.length)] : of(0, queue.length))];
  }
  let from = 0, shift = 0;
  for (const [place, gone, ...rest] of edits) {
    const [ids] = unpacked(rest, 0);
    stays(from, place, shift);
    for (const block of before.subarray(place, place + gone)) row.push(["gone", block, -1]);
    ids.forEach((block, i) => row.push(["came", block, place + shift + i]));
    from = place + gone;
    shift += ids.length - gone;
  }
  stays(from, before.length, shift);
  if (row.length <= 2 * most) return row;
  return [...row.slice(0, most), null, ...row.slice(-most)];
}

/** The free queue in the order of eviction: arrows say what left it in this step and where to, what came and where from. */
function FreeQueue(parts) {
  const hidden = (name) => hides(parts.trace, parts.index, name);
  if (hidden("free")) return html`<p class="quiet">hidden: the target does not show which blocks are free</p>`;
  const unordered = parts.trace.sides.some((_, i) => hides(parts.trace, i, "free_order") || hides(parts.trace, i, "free"));
  return html`<${ShownQueue} ...${parts} other=${unordered ? null : parts.other} ordered=${!hidden("free_order")} />`;
}

function ShownQueue({ trace, step, side, other, before, change, selected, onSelect, ordered }) {
  const most = trace.num_blocks > 9999 ? 24 : 36, queue = side.queue, list = useRef();
  const row = useMemo(() => queueRow(queue, before, change, most), [queue, before, change]);
  const owners = change?.queue ? side.owners() : null, by = change?.queue && step >= 0 ? trace.steps[step].request : -1;
  const shown = row.filter(Boolean), arrived = new Set(shown.filter(([kind]) => kind === "came").map(([, block]) => block));
  const left = new Set(shown.filter(([kind]) => kind === "gone").map(([, block]) => block));
  const moved = [...left].filter((block) => arrived.has(block));
  const parts = other ? queue.findIndex((block, i) => other[i] !== block) : -1; // behind the first difference much is shifted
  const to = (block) => (owners[block] >= 0 ? ownerMark(trace, owners[block]) : side.ref[block] > 0 ? "outside" : "");
  const toName = (block) => (owners[block] >= 0 ? visible(trace.requests[owners[block]]) : side.ref[block] > 0 ? "an outside holder" : "nobody");
  useLayoutEffect(() => {
    const chip = [".differs", ".chosen", ".came"].map((one) => list.current.querySelector(`.chip${one}`)).find(Boolean);
    list.current.scrollTop = chip ? chip.offsetTop - list.current.clientHeight / 2 : 0;
    drawMoves(list.current, moved);
  }, [row, selected]);
  const chip = (entry, i) => {
    if (!entry) return html`<li class="gap" key="gap">${number.format(queue.length - shown.filter(([kind]) => kind !== "gone").length)} more</li>`;
    const [kind, block, place] = entry, content = side.label[block] >= 0;
    if (kind === "gone") {
      const where = arrived.has(block) ? "moved" : `to ${toName(block)}`;
      return html`<li key=${`gone-${i}`} class="ghost" data-gone=${block} title=${`block ${block} left in this step, ${where}`}><span class="sr">block ${block} left, ${where}</span>
        <span class="chip" aria-hidden="true">${block}</span><span class="to" aria-hidden="true">${arrived.has(block) ? "⤳" : html`↑${owners[block] >= 0 ? html`<i class="swatch small" style=${{ background: ownerColor(owners[block]) }}>${to(block)}</i>` : to(block)}`}</span></li>`;
    }
    const differs = place === parts, came = kind === "came", from = came && !left.has(block) && by >= 0 ? `, from ${visible(trace.requests[by])}` : "";
    return html`<li key=${`${place}-${block}`} data-came=${came ? block : undefined}>
      ${came && !left.has(block) && html`<span class="to" aria-hidden="true">${by >= 0 ? html`<i class="swatch small" style=${{ background: ownerColor(by) }}>${ownerMark(trace, by)}</i>` : ""}↓</span>`}
      <button class=${`chip ${content ? "candidate" : ""} ${came ? "came" : ""} ${differs ? "differs" : ""} ${block === selected ? "chosen" : ""}`}
      aria-label=${`place ${place}: block ${block}${differs ? ", differs" : ""}${content ? ", with content" : ""}${came ? `, came in this step${from}` : ""}`} onClick=${() => onSelect(block)}>${differs ? html`<span aria-hidden="true">≠</span>` : ""}${block}</button></li>`;
  };
  return html`<div class="queue">
    <div class="end">${ordered ? "next to be reused" : "in no order, which is hidden"}${left.size + arrived.size > 0 && html` <span>· ↑ left in this step · ↓ came${moved.length > 0 ? " · ⤳ moved" : ""}</span>`}</div>
    <div class="strip"><ol ref=${list} aria-label=${ordered ? "Free queue, the next block to be reused first" : "Free blocks, in no order"}>${shown.length ? row.map(chip) : html`<li class="gap">empty: no block is free</li>`}</ol><svg class="moves" aria-hidden="true"></svg></div></div>`;
}

/** Arrows from where blocks stood in the queue to where they stand now. */
function drawMoves(list, blocks) {
  const svg = list.nextElementSibling, box = list.getBoundingClientRect();
  svg.replaceChildren();
  for (const block of blocks.slice(0, 12)) {
    const ends = [`[data-gone="${block}"]`, `[data-came="${block}"]`].map((one) => list.querySelector(one)?.getBoundingClientRect());
    if (!ends[0] || !ends[1]) continue;
    const [x1, x2] = ends.map((end) => end.left + end.width / 2 - box.left), [y1, y2] = ends.map((end) => end.bottom - box.top);
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path"), low = Math.max(y1, y2) + 12;
    path.setAttribute("d", `M${x1} ${y1} C${x1} ${low} ${x2} ${low} ${x2} ${y2 + 2} m-3 4 l3 -5 l3 5`);
    svg.append(path);
  }
}
