// The view of a story: what each request does over the calls, what lies in memory, and what a wrong read found.

const NOBODY = -1, JUNK = -2;
const MOST_SLOTS = 4096; // drawn of a memory

/** A field at its default is not written. */
function completeStory(story) {
  story.sides = [];
  story.verdict.step ??= -1;
  for (const one of story.steps) {
    one.request ??= NOBODY;
    for (const name of ["more", "states", "slots", "misread"]) one[name] ??= [];
  }
}

/** Of each request its stretches: from which call on, up to which, it does what. */
function stretchesOf(story) {
  const lanes = story.requests.map(() => []);
  story.steps.forEach((one, step) => {
    for (const [request, state] of one.states) {
      const lane = lanes[request], last = lane[lane.length - 1];
      if (last) last.to = step;
      lane.push({ state, from: step, to: story.steps.length });
    }
  });
  return lanes;
}

/** What lies in each memory behind a call: by slot who, at which position, and which call wrote it. */
function memoryAt(story, step) {
  const memories = story.memories.map(() => new Map());
  for (let at = 0; at <= step; at++) for (const [memory, slot, request, position] of story.steps[at].slots) memories[memory].set(slot, { request, position, at });
  return memories;
}

function StoryView({ story, hash, setHash, theme }) {
  const last = story.steps.length - 1, begin = story.verdict.found ? story.verdict.step : last;
  const within = (step) => Math.max(-1, Math.min(last, step)), step = within(hash.step ?? begin);
  const go = useCallback((to) => setHash((old) => ({ ...old, step: within(typeof to === "function" ? to(within(old.step ?? begin)) : to) })), [story]);
  const player = usePlayer(step, last, go), toFinding = () => {
    go(story.verdict.step);
    requestAnimationFrame(() => requestAnimationFrame(() => document.querySelector(".slot.misread")?.scrollIntoView({ block: "center" })));
  };
  useKeys(player, { f: toFinding });
  const lanes = useMemo(() => stretchesOf(story), [story]);
  const memories = useMemo(() => memoryAt(story, step), [story, step]);
  return html`<div class="trace story">
    <header class="bar"><div class="names"><h1 title=${visible(story.title)}><bdi>${short(story.title, 60)}</bdi></h1><span class="on">on <b><bdi>${short(story.target, 60)}</bdi></b></span></div><${ThemeButton} theme=${theme} /></header>
    <${VerdictCard} trace=${{ ...story, sides: [story] }} toFinding=${toFinding} step=${step} go=${go} />
    <section class="transport" aria-label="Timeline"><${Controls} player=${player} />
      <div class="timeline"><input type="range" min="-1" max=${last} value=${step} aria-label="Step" onInput=${(event) => go(Number(event.target.value))} /></div></section>
    <main class="columns">
      <section class="column left" aria-labelledby="steps-title"><h2 id="steps-title">Calls</h2>
        <${StepList} trace=${story} step=${step} matches=${null} onStep=${go} /></section>
      <div class="column middle" tabindex="0" role="group" aria-label="State">
        <section aria-labelledby="lanes-title"><h2 id="lanes-title">Requests <${StateLegend} story=${story} /></h2>
          <${Lanes} story=${story} lanes=${lanes} step=${step} onStep=${go} /></section>
        <section aria-labelledby="memory-title"><h2 id="memory-title">Memory <${SlotLegend} /></h2>
          ${story.memories.map((name, i) => html`<${Slots} key=${name} story=${story} name=${name} index=${i} held=${memories[i]} step=${step} onStep=${go} />`)}
          ${!story.memories.length && html`<p class="quiet">The engine shows no slots, so nothing is known of its memory.</p>`}</section>
      </div>
      <div class="column right" tabindex="0" role="group" aria-label="Details">
        <section aria-labelledby="step-title"><h2 id="step-title">${step < 0 ? "Start" : `Step ${number.format(step)}`}</h2><${MomentPanel} story=${story} step=${step} memories=${memories} onStep=${go} /></section>
        <section aria-labelledby="about-title"><h2 id="about-title">About</h2><div class="panel-body about"><p class="code">${visible(story.shape)}</p>
          ${story.command && html`<p>Repeat it:</p><p class="code">${visible(story.command)}</p>`}
          <p class="keys"><kbd>←</kbd> <kbd>→</kbd> step, with <kbd>Shift</kbd> ten · <kbd>Space</kbd> play · <kbd>Home</kbd> <kbd>End</kbd> · <kbd>f</kbd> the finding</p></div></section>
      </div>
    </main>
    <p class="sr" role="status">${step < 0 ? "start" : `step ${step}: ${visible(story.steps[step].text)}`}</p>
  </div>`;
}

const MARKS = { waiting: "…", prefill: "P", decode: "D", "in flight": "~", running: "·", preempted: "↩", parked: "‖", cancelled: "✗", done: "✓" };
const stateClass = (name) => `state-${name.replace(" ", "-")}`;
const StateLegend = ({ story }) => html`<span class="legend">${story.states.map((name) => html`<span key=${name}><i class=${`key ${stateClass(name)}`}>${MARKS[name]}</i>${name}</span>`)}</span>`;
const SlotLegend = () => html`<span class="legend"><span><i class="key used">3</i>position 3 of a request</span><span><i class="key used changed">3</i>written now</span><span><i class="key junk">×</i>nobody may read it</span>
  <span><i class="key used misread">3</i>a wrong read found it</span></span>`;

/** A lane for each request; a click goes to the call. */
function Lanes({ story, lanes, step, onStep }) {
  const box = useRef(), many = story.steps.length, wide = many * 11;
  useLayoutEffect(() => {
    const left = ((step + 0.5) / many) * box.current.scrollWidth - box.current.clientWidth / 2;
    if (box.current.scrollWidth > box.current.clientWidth) box.current.scrollLeft = left;
  }, [step]);
  const clicked = (event) => {
    const area = event.currentTarget.getBoundingClientRect();
    onStep(Math.floor(((event.clientX - area.left) / area.width) * many));
  };
  return html`<div class="lanes"><div class="lane-names" aria-hidden="true">${story.requests.map((name, request) => html`<div key=${request}><i class="swatch small" style=${{ background: ownerColor(request) }}>${ownerMark(story, request)}</i></div>`)}</div>
    <div class="lane-box" ref=${box} tabindex="0" role="group" aria-label="What each request does"><div class="lane-area" style=${{ minWidth: `${wide}px` }} onClick=${clicked}>
      ${lanes.map((lane, request) => html`<div class="lane" key=${request} role="img" aria-label=${laneWords(story, lane, request, step)}>
        <i style=${{ flex: lane.length ? lane[0].from : many }}></i>
        ${lane.map(({ state, from, to }) => html`<i key=${from} class=${stateClass(story.states[state])} style=${{ flex: to - from }} title=${`${visible(story.requests[request])}: ${story.states[state]}, from step ${from} on`}>${MARKS[story.states[state]]}</i>`)}</div>`)}
      ${step >= 0 && html`<b class="cursor" style=${{ left: `${(step / many) * 100}%`, width: `${100 / many}%` }}></b>`}
      ${story.verdict.found && story.verdict.step >= 0 && html`<b class="cursor bad" style=${{ left: `${(story.verdict.step / many) * 100}%`, width: `${100 / many}%` }}></b>`}</div></div></div>`;
}

function laneWords(story, lane, request, step) {
  const now = lane.find(({ from, to }) => from <= step && step < to);
  return `${visible(story.requests[request])}: ${now ? story.states[now.state] : "not there yet"}`;
}

/** The blocks of one memory that were ever written, slot by slot. */
function Slots({ story, name, index, held, step, onStep }) {
  const blocks = useMemo(() => {
    const seen = new Set(story.steps.flatMap((one) => one.slots.filter(([memory]) => memory === index).map(([, slot]) => Math.floor(slot / story.width))));
    return [...seen].sort((a, b) => a - b);
  }, [story]);
  const shown = blocks.slice(0, Math.max(1, Math.floor(MOST_SLOTS / story.width)));
  const wrong = new Set((story.steps[step]?.misread || []).filter(([memory]) => memory === index).map(([, slot]) => slot));
  const cell = (slot) => {
    const one = held.get(slot), is = one && one.request >= 0;
    const said = `slot ${slot}: ${slotWords(story, one)}${wrong.has(slot) ? "; a wrong read found it" : ""}`;
    const classes = ["slot", one && one.request === JUNK ? "junk" : "", one && one.at === step ? "changed" : "", wrong.has(slot) ? "misread" : ""];
    return html`<button key=${slot} class=${classes.filter(Boolean).join(" ")} style=${is ? { background: ownerColor(one.request) } : {}} title=${said} aria-label=${said}
      onClick=${() => one && onStep(one.at)}>${is ? one.position : one ? "×" : ""}</button>`;
  };
  return html`${story.memories.length > 1 && html`<h3>${visible(name)}</h3>`}<div class="blocks">${shown.map((block) => html`<div class="block" key=${block}><span class="num">${block}</span>
      ${Array.from({ length: story.width }, (_, offset) => cell(block * story.width + offset))}</div>`)}</div>
    ${shown.length < blocks.length && html`<p class="quiet">${count(blocks.length - shown.length, "block")} more are not drawn.</p>`}`;
}

function slotWords(story, one) {
  return one ? `${contentWords(story, one.request, one.position)}, written in step ${one.at}` : "nobody wrote it";
}

function contentWords(story, request, position) {
  if (request === JUNK) return "what nobody may read";
  return request < 0 ? "what is of no request" : `position ${position} of ${visible(story.requests[request])}`;
}

/** What the call did, line by line, and what a wrong read found. */
function MomentPanel({ story, step, memories, onStep }) {
  const one = story.steps[step];
  if (!one) return html`<div class="panel-body"><p class="quiet">The engine is built; nobody has asked for anything.</p></div>`;
  return html`<div class="panel-body"><p class="code">${visible(one.text)}</p>
    <ul class="more-lines">${one.more.map((line, i) => html`<li key=${i}>${visible(line)}</li>`)}</ul>
    ${one.misread.map(([memory, slot, request, position]) => {
      const at = memories[memory].get(slot)?.at ?? step;
      return html`<p class="note bad-note" key=${`${memory}-${slot}`}><b>✗ slot ${slot}</b>${story.memories.length > 1 ? ` of ${visible(story.memories[memory])}` : ""} was read, and held ${contentWords(story, request, position)}.
        ${at !== step && html` <button class="link" onClick=${() => onStep(at)}>It was written in step ${at}</button>`}</p>`;
    })}
    ${one.slots.length > 0 && html`<p class="quiet">${count(one.slots.length, "slot")} written.</p>`}</div>`;
}
