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

function Pool({ trace, side, other, index, step, selected, onSelect, theme }) {
  const canvas = useRef();
  const frame = useRef();
  const [width, setWidth] = useState(600);
  useLayoutEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    watch.observe(frame.current);
    return () => watch.disconnect();
  }, []);
  const grid = gridOf(trace.num_blocks, width);
  useLayoutEffect(() => drawPool(canvas.current, grid, trace, side, other, changeAt(trace, index, step), selected), [width, step, selected, theme, trace, index]);
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
      aria-label=${`Pool of ${visible(name)}: ${poolWords(trace, side)}. Arrow keys choose a block.`} onKeyDown=${keys}>
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

function poolWords(trace, side) {
  const { used, candidates, shared, free } = poolCounts(trace, side);
  const more = shared ? ` (${number.format(shared)} shared)` : "";
  return `${number.format(used)} in use${more}, ${number.format(candidates)} free with content, ${number.format(free)} free without`;
}

const changeAt = (trace, index, step) => (step < 0 ? undefined : trace.sides[index].steps[step]);

function changedBlocks(change) {
  const blocks = new Set();
  for (const name of ["ref", "label"]) for (let i = 0; i < (change?.[name] || []).length; i += 2) blocks.add(change[name][i]);
  return blocks;
}

function drawPool(canvas, grid, trace, side, other, change, selected) {
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
  const owners = side.owners(), theirs = other ? other.owners() : null, changed = changedBlocks(change);
  const differs = (block) => other && (other.ref[block] !== side.ref[block] || other.label[block] !== side.label[block] || other.first[block] !== side.first[block] || theirs[block] !== owners[block]);
  const at = (block) => [(block % columns) * size, Math.floor(block / columns) * size];
  pen.setTransform(1, 0, 0, 1, 0, 0);
  const drawn = small && drawPixels(pen, { cell, columns, rows }, trace, side, owners, differs, look);
  pen.scale(scale, scale);
  for (let block = 0; !small && block < trace.num_blocks; block++) {
    const [x, y] = at(block), owner = owners[block];
    bigCell(pen, x, y, size, { trace, block, owner, held: owner >= 0 || side.ref[block] > 0, registered: side.label[block] >= 0, references: side.ref[block] }, look);
    if (!differs(block)) continue;
    pen.fillStyle = look.bad;
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
  const { cells, pixels, inks } = drawn, inner = cell > 4 ? cell - 1 : cell, half = Math.ceil(inner / 2), ink = asPixel(look.ink);
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
    pen.fillText(references > 1 ? `${mark}+${references - 1}` : mark, x + 3, y + size / 2 - 1, size - 6);
  }
}

/** The blocks that came into the free queue with a change, and those that left it; `before` is the queue as it was. */
function queueMoves(before, change) {
  const came = new Set(), gone = [];
  for (const [place, count, ...ids] of (before && change?.queue) || []) {
    for (const block of unpacked(ids, 0)[0]) came.add(block);
    gone.push(...before.subarray(place, place + Math.min(count, 10000)));
  }
  return { left: gone.filter((block) => !came.has(block)).sort((a, b) => before.indexOf(a) - before.indexOf(b)), came: new Set([...came].filter((block) => !gone.includes(block))) };
}

/** The free queue in the order of eviction; what came in this step is marked, what left is named. */
function FreeQueue({ trace, side, before, change, selected, onSelect }) {
  const most = trace.num_blocks > 9999 ? 24 : 36, queue = side.queue;
  const { left, came } = useMemo(() => queueMoves(before, change), [before, change]);
  const owners = left.length ? side.owners() : null;
  const chip = (block, place) => html`<li key=${`${place}-${block}`}>
    <button class=${`chip ${side.label[block] >= 0 ? "candidate" : ""} ${came.has(block) ? "came" : ""} ${block === selected ? "chosen" : ""}`}
      aria-label=${`place ${place}: block ${block}${side.label[block] >= 0 ? ", with content" : ""}${came.has(block) ? ", came in this step" : ""}`}
      onClick=${() => onSelect(block)}>${came.has(block) ? html`<span class="arrow" aria-hidden="true">↓</span>` : ""}${block}</button></li>`;
  const shown = queue.length <= most ? [...queue].map(chip) : [
    ...[...queue.subarray(0, most / 2)].map(chip),
    html`<li class="gap" key="gap">${number.format(queue.length - most)} more</li>`,
    ...[...queue.subarray(queue.length - most / 2)].map((block, i) => chip(block, queue.length - most / 2 + i)),
  ];
  const to = (block) => (owners[block] >= 0 ? ` → ${short(trace.requests[owners[block]])}` : side.ref[block] > 0 ? " → outside" : "");
  return html`<div class="queue">
    <div class="end">next to be reused</div>
    <ol aria-label="Free queue, the next block to be reused first">${shown.length ? shown : html`<li class="gap">empty: no block is free</li>`}</ol>
    ${left.length > 0 && html`<p class="left"><span aria-hidden="true">↑ </span>left in this step:${" "}
      ${left.slice(0, 16).map((block, i) => html`<span class="gone">${i ? ", " : ""}${block}${to(block)}</span>`)}${left.length > 16 ? ` and ${number.format(left.length - 16)} more` : ""}</p>`}
  </div>`;
}
