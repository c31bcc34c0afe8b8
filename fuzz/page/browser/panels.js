// The list of steps, the timeline, what a step did, and what is known of a block.

const ROW = 24;

/** All steps; only those in sight are in the document. */
function StepList({ trace, step, matches, onStep }) {
  const box = useRef();
  const [view, setView] = useState([0, 400]);
  const bad = trace.verdict.found ? trace.verdict.step : -2;
  useLayoutEffect(() => {
    const watch = new ResizeObserver(() => setView([box.current.scrollTop, box.current.clientHeight]));
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  useLayoutEffect(() => {
    const y = (step + 1) * ROW, { scrollTop, clientHeight } = box.current;
    if (y < scrollTop + ROW || y > scrollTop + clientHeight - 2 * ROW) box.current.scrollTop = Math.max(0, y - clientHeight / 2);
  }, [step]);
  const first = Math.max(-1, Math.floor(view[0] / ROW) - 6), last = Math.min(trace.steps.length - 1, Math.ceil((view[0] + view[1]) / ROW) + 6);
  const rows = [];
  for (let i = first; i <= last; i++) {
    const one = trace.steps[i], outcome = i < 0 ? "" : outcomeOf(trace, i);
    const classes = ["step", i === step ? "now" : "", i === bad ? "bad" : "", matches ? (matches.has(i) ? "match" : "dim") : "", outcome === "done" ? "" : "undone"];
    rows.push(html`<div key=${i} id=${`step-${i}`} role="option" aria-selected=${i === step} aria-posinset=${i + 2} aria-setsize=${trace.steps.length + 1}
      class=${classes.join(" ")} style=${{ top: `${(i + 1) * ROW}px` }} onClick=${() => onStep(i)}>
      <span class="num">${i < 0 ? "" : i}</span>
      ${one && one.request >= 0 ? html`<span class="dot" style=${{ background: ownerColor(one.request) }}>${ownerMark(trace, one.request)}</span>` : html`<span class="dot none"></span>`}
      <span class="text">${i < 0 ? `start: the ${trace.document === "story" ? "engine" : "core"} is built` : visible(one.text)}</span>
      ${i === bad ? html`<span class="sign" title="what was found">✗</span>` : outcome && outcome !== "done" ? html`<span class="sign">${outcome}</span>` : ""}
    </div>`);
  }
  return html`<div class="steps" ref=${box} tabindex="0" role="listbox" aria-label="Steps" aria-activedescendant=${step >= first && step <= last ? `step-${step}` : undefined}
      onScroll=${() => setView([box.current.scrollTop, box.current.clientHeight])}>
    <div role="presentation" style=${{ height: `${(trace.steps.length + 1) * ROW}px` }}>${rows}</div></div>`;
}

/** The outcome of a step on the last side that has one. */
function outcomeOf(trace, step) {
  for (let i = trace.sides.length - 1; i >= 0; i--) if (trace.sides[i].steps[step]) return trace.sides[i].steps[step].outcome;
  return "";
}

/** From where to where each request lives, and what was done to it: made once. */
function livesOf(trace) {
  const lives = [], open = new Map();
  trace.steps.forEach((one, step) => {
    if (one.request >= 0 && one.kind === "Submit" && outcomeOf(trace, step) === "done") {
      const life = { request: one.request, from: step, to: trace.steps.length - 1, marks: [] };
      lives.push(life);
      open.set(one.request, life);
    }
    const life = open.get(one.request);
    if (life) life.marks.push([step, one.kind, outcomeOf(trace, step)]);
    if (life && one.kind === "Free") {
      life.to = step;
      open.delete(one.request);
    }
  });
  // As few lanes as there are requests at a time.
  const ends = [];
  for (const life of lives) {
    let lane = ends.findIndex((end) => end < life.from);
    if (lane < 0) lane = ends.length;
    ends[lane] = life.to;
    life.lane = lane;
  }
  return { lives, lanes: Math.max(1, ends.length) };
}

function Timeline({ trace, step, onStep, theme }) {
  const canvas = useRef(), [width, setWidth] = useState(600);
  const { lives, lanes } = useMemo(() => livesOf(trace), [trace]);
  const lane = lanes > 8 ? Math.max(3, Math.floor(112 / lanes)) : 14, height = Math.min(lanes * lane, 160) + 6;
  useLayoutEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    watch.observe(canvas.current.parentElement);
    return () => watch.disconnect();
  }, []);
  const steps = trace.steps.length + 1, x = (at) => ((at + 1) / steps) * width;
  useLayoutEffect(() => {
    const ratio = window.devicePixelRatio || 1, pen = canvas.current.getContext("2d");
    canvas.current.width = width * ratio;
    canvas.current.height = height * ratio;
    pen.scale(ratio, ratio);
    const ink = cssColor("--ink"), wide = width / steps;
    pen.font = "600 10px ui-sans-serif, system-ui, sans-serif";
    pen.textBaseline = "middle";
    for (const { request, from, to, lane: row, marks } of lives) {
      const y = 3 + row * lane, tall = Math.max(2, lane - 3);
      pen.fillStyle = ownerColor(request);
      pen.fillRect(x(from), y, Math.max(2, x(to) + wide - x(from) - 1), tall);
      for (const [at, kind, outcome] of wide >= 3 && tall >= 8 ? marks : []) {
        pen.fillStyle = INK;
        const middle = x(at) + wide / 2;
        if (kind === "Preempt" || outcome === "failed") pen.fillText("×", middle - 3, y + tall / 2);
        else if (outcome === "refused") pen.fillText("–", middle - 3, y + tall / 2);
        else if (kind === "Allocate") pen.fillRect(middle - 1, y + tall - 4, 2, 4);
        else if (kind === "Lookup") pen.fillRect(middle - 1.5, y + 1, 3, 2);
      }
      pen.fillStyle = INK;
      if (tall >= 10 && x(to) + wide - x(from) > 18) pen.fillText(ownerMark(trace, request), x(from) + 3, y + tall / 2 + 0.5);
    }
    if (trace.verdict.found && trace.verdict.step >= -1) {
      pen.fillStyle = cssColor("--bad");
      pen.fillRect(x(trace.verdict.step) + wide / 2 - 1, 0, 2, height);
    }
    pen.strokeStyle = ink;
    pen.lineWidth = 1.5;
    pen.strokeRect(x(step) + 0.5, 0.75, Math.max(3, wide - 1), height - 1.5);
  }, [trace, width, step, theme]);
  const go = (event) => {
    const box = canvas.current.getBoundingClientRect();
    onStep(Math.max(-1, Math.min(trace.steps.length - 1, Math.floor(((event.clientX - box.left) / box.width) * steps) - 1)));
  };
  return html`<div class="timeline"><canvas ref=${canvas} style=${{ height: `${height}px` }} aria-hidden="true"
      onPointerDown=${(event) => { event.currentTarget.setPointerCapture(event.pointerId); go(event); }} onPointerMove=${(event) => event.buttons && go(event)} />
    <input type="range" min="-1" max=${trace.steps.length - 1} value=${step} aria-label="Step" aria-valuetext=${step < 0 ? "start" : `step ${step}: ${visible(trace.steps[step].text)}`}
      onInput=${(event) => onStep(Number(event.target.value))} /></div>`;
}

/** What a step asked for, what came back, what it changed: on both sides, where there are two. */
function StepPanel({ trace, step }) {
  const sides = trace.sides.filter((side) => step < side.steps.length);
  if (step < 0) return html`<div class="panel-body"><p class="words">The core is built.</p><p class="code">${visible(trace.shape)}</p></div>`;
  const one = trace.steps[step], changes = sides.map((side) => side.steps[step]);
  const hidden = new Set(sides.length < 2 ? [] : sides.flatMap((side) => side.hidden || [])); // of two, what one hides is not compared
  const lines = changes.map((change) => changeLines(trace, change, hidden));
  const alike = sides.length < 2 ? lines[0] || [] : lines[0].filter((line) => lines[1].includes(line));
  const same = sides.length < 2 || (changes[0].answer === changes[1].answer && changes[0].outcome === changes[1].outcome);
  return html`<div class="panel-body">
    <p class="words"><bdi>${visible(one.words)}</bdi></p>
    <p class="code">${visible(one.text)}</p>
    <dl class="answers">${(same ? sides.slice(-1) : sides).map((side, i) => html`<div key=${i} class=${same ? "" : "differs"}>
      <dt>${same && sides.length > 1 ? "both answer" : `${visible(side.name)} answers`}</dt><dd>${same ? "" : html`<span class="flag">≠</span>`}<code>${visible(side.steps[step].answer || "nothing")}</code></dd></div>`)}</dl>
    ${alike.length > 0 && html`<ul class="changes">${alike.map((line) => html`<li key=${line}>${line}</li>`)}</ul>`}
    ${sides.length > 1 && lines.map((of, i) => {
      const own = of.filter((line) => !alike.includes(line));
      return own.length > 0 && html`<div key=${i} class="own"><h3>${visible(sides[i].name)} alone</h3><ul class="changes differs">${own.map((line) => html`<li key=${line}><span class="flag" aria-hidden="true">≠</span>${line}</li>`)}</ul></div>`;
    })}
    ${!alike.length && lines.every((of) => !of.length) && html`<p class="quiet">Nothing that can be seen has changed.</p>`}
    ${copyLines(one).map((line) => html`<p class="note copied">${line}</p>`)}
    ${(one.counted || []).map((what) => html`<p class="note">counted: ${visible(what)}</p>`)}
  </div>`;
}

/** All about the chosen block. */
function BlockPanel({ trace, now, block, step, onStep, onSelect }) {
  const histories = useMemo(() => (block < 0 ? [] : trace.sides.map((side) => historyOf(trace, side, block))), [trace, block]);
  if (block < 0) return html`<div class="panel-body"><p class="quiet">Choose a block: in the pool, in a table or in the queue.</p></div>`;
  return html`<div class="panel-body">${trace.sides.map((side, i) => (now.alike && !i ? null : side)).map((side, i) => {
    if (!side) return null;
    const state = now.sides[i], [, said] = blockWords(trace, state, block, i), named = state.content.get(state.label[block]);
    const place = state.queue.indexOf(block), first = state.first[block];
    return html`<div class="block-side" key=${i}>
      ${trace.sides.length > 1 && html`<h3>${now.alike ? "on both sides" : visible(side.name)}</h3>`}
      <p>Block ${block} is ${said}.${place >= 0 ? ` It stands at place ${number.format(place)} of the free queue.` : ""}
        ${first >= 0 && first !== block ? html` A lookup of its content yields <button class="link" onClick=${() => onSelect(first)}>block ${first}</button>.` : ""}</p>
      ${block > 0 && html`<p class="facts">${hides(trace, i, "ref_cnt") ? (hides(trace, i, "tables") ? "references are hidden" : `${count(state.ref[block], "reference")} counted from the tables: the target hides its own`) : count(state.ref[block], "reference")}</p>`}
      ${now.requests.names.has(block) && html`<p class="facts named">${nameWords(now.requests.names.get(block))}</p>`}
      ${named && state.label[block] >= 0 && html`<p class="facts">content ${state.label[block]}: <code>${nodeText(trace, named[1])}</code></p>`}
      <ol class="history" aria-label=${`History of block ${block}, ${visible(side.name)}`}>${histories[i].filter(([at]) => at >= 0).slice(-60).map(([at, what]) => html`<li key=${at} class=${at === step ? "now" : at > step ? "later" : ""}>
        <button class="link" onClick=${() => onStep(at)}>step ${at}</button> ${what}</li>`)}</ol></div>`;
  })}</div>`;
}
