// The pool as a grid of blocks on a canvas, and the free queue as a strip.

const BIG = 16; // from this size on a cell shows its mark

/** Size of a cell and columns, so that a pool of any size fits the width; large pools scroll. */
function gridOf(numBlocks, width) {
  for (const size of [38, 30, 24, 18, 14, 11, 9, 7, 6, 5, 4, 3]) {
    const columns = Math.max(1, Math.floor(width / size));
    if (Math.ceil(numBlocks / columns) * size <= 300 || size === 3) return { size, columns, rows: Math.ceil(numBlocks / columns) };
  }
}

const cssColor = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

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
  let used = 0, candidates = 0, shared = 0;
  for (let block = 1; block < trace.num_blocks; block++) {
    if (side.ref[block] > 0) used++;
    else if (side.label[block] >= 0) candidates++;
    if (side.ref[block] > 1) shared++;
  }
  return { used, candidates, shared, free: trace.num_blocks - 1 - used - candidates };
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
  const { size, columns, rows } = grid, ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(columns * size * ratio));
  canvas.height = Math.max(1, Math.round(rows * size * ratio));
  canvas.style.width = `${columns * size}px`;
  canvas.style.height = `${rows * size}px`;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  const look = { line: cssColor("--line-strong"), soft: cssColor("--free"), ink: cssColor("--ink"), bad: cssColor("--bad"), mark: cssColor("--accent"), used: cssColor("--outside") };
  const owners = side.owners(), theirs = other ? other.owners() : null, changed = changedBlocks(change);
  for (let block = 0; block < trace.num_blocks; block++) {
    const x = (block % columns) * size, y = Math.floor(block / columns) * size;
    const owner = owners[block], registered = side.label[block] >= 0, held = owner >= 0 || side.ref[block] > 0;
    if (size < 9) smallCell(pen, x, y, size, block, owner, held, registered, look);
    else bigCell(pen, x, y, size, { trace, block, owner, held, registered, references: side.ref[block] }, look);
    const differs = other && (other.ref[block] !== side.ref[block] || other.label[block] !== side.label[block] || other.first[block] !== side.first[block] || theirs[block] !== owner);
    if (differs) {
      pen.fillStyle = look.bad;
      if (size >= 9) {
        pen.beginPath();
        pen.moveTo(x + size - 1, y + 1);
        pen.lineTo(x + size - 1, y + size * 0.45);
        pen.lineTo(x + size * 0.55, y + 1);
        pen.fill();
      } else pen.fillRect(x, y, size - 1, size - 1);
    }
    if (size >= 5 && changed.has(block)) outline(pen, x, y, size, look.ink, 1.5);
    if (block === selected) outline(pen, x, y, size, look.mark, Math.max(2, size / 10));
  }
}

function outline(pen, x, y, size, color, width) {
  pen.strokeStyle = color;
  pen.lineWidth = width;
  pen.strokeRect(x + width / 2, y + width / 2, size - 1 - width, size - 1 - width);
}

function smallCell(pen, x, y, size, block, owner, held, registered, look) {
  const inner = size - 1;
  pen.fillStyle = held ? (owner >= 0 ? ownerColor(owner) : look.used) : look.soft;
  pen.fillRect(x, y, inner, inner);
  if (block === 0) {
    pen.fillStyle = look.line;
    pen.fillRect(x, y, inner, inner);
  } else if (!held && registered) {
    pen.fillStyle = look.ink;
    pen.fillRect(x, y, Math.ceil(inner / 2), Math.ceil(inner / 2));
  }
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

/** The free queue in the order of eviction; what came in this step is marked, what left is named. */
function FreeQueue({ trace, side, before, selected, onSelect }) {
  const most = 36, queue = side.queue;
  const was = useMemo(() => new Set(before ? before : []), [before]);
  const now = useMemo(() => new Set(queue), [queue]);
  const left = before ? [...before].filter((block) => !now.has(block)) : [];
  const owners = left.length ? side.owners() : null;
  const chip = (block, place) => html`<li key=${`${place}-${block}`}>
    <button class=${`chip ${side.label[block] >= 0 ? "candidate" : ""} ${before && !was.has(block) ? "came" : ""} ${block === selected ? "chosen" : ""}`}
      aria-label=${`place ${place}: block ${block}${side.label[block] >= 0 ? ", with content" : ""}${before && !was.has(block) ? ", came in this step" : ""}`}
      onClick=${() => onSelect(block)}>${before && !was.has(block) ? html`<span class="arrow" aria-hidden="true">↓</span>` : ""}${block}</button></li>`;
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
