// The view of one trace: header, timeline, steps, pool, tables, contents, and what was found.

const SPEEDS = [[1200, "slow"], [500, "normal"], [120, "fast"]];

/** Steps that match a search, or a place to go to: `#12` or `12` is a step, `block 7` a block. */
function searched(trace, query) {
  const text = query.trim().toLowerCase();
  if (!text) return { matches: null };
  const jump = /^#?(\d+)$/.exec(text), block = /^b(?:lock)?\s+(\d+)$/.exec(text);
  if (block) return { matches: null, block: Number(block[1]) };
  const matches = new Set();
  trace.steps.forEach((one, step) => {
    const answers = trace.sides.map((side) => side.steps[step]?.answer || "").join(" ");
    if (`${one.text} ${one.words} ${answers}`.toLowerCase().includes(text)) matches.add(step);
  });
  return { matches, step: jump && Number(jump[1]) < trace.steps.length ? Number(jump[1]) : undefined };
}

/** Going through steps 0 to `last`, and -1 before them: by hand, or by itself. */
function usePlayer(step, last, go) {
  const [playing, setPlaying] = useState(false), [speed, setSpeed] = useState(1);
  useEffect(() => {
    if (!playing) return undefined;
    if (step >= last) return setPlaying(false);
    const timer = setTimeout(() => go((at) => at + 1), SPEEDS[speed][0]);
    return () => clearTimeout(timer);
  }, [playing, step, speed]);
  const play = () => {
    if (!playing && step >= last) go(-1);
    setPlaying(!playing);
  };
  return { step, last, go, playing, play, speed, faster: () => setSpeed((speed + 1) % SPEEDS.length) };
}

/** The keys of a player, and more of the view's own. */
function useKeys({ last, go, play }, more) {
  useLayoutEffect(() => {
    const keys = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "range";
      if (typing) return event.key === "Escape" && event.target.blur();
      const act = { ArrowRight: () => go((at) => at + (event.shiftKey ? 10 : 1)), ArrowLeft: () => go((at) => at - (event.shiftKey ? 10 : 1)),
        ArrowDown: () => go((at) => at + 1), ArrowUp: () => go((at) => at - 1), Home: () => go(-1), End: () => go(last),
        PageDown: () => go((at) => at + 20), PageUp: () => go((at) => at - 20), ...more }[event.key];
      const button = event.target.tagName === "BUTTON" || event.target.tagName === "SUMMARY";
      if (event.key === " " && !button) { event.preventDefault(); play(); return; }
      if (!act) return;
      event.preventDefault();
      act();
    };
    document.addEventListener("keydown", keys);
    return () => document.removeEventListener("keydown", keys);
  });
}

function Controls({ player: { step, last, go, playing, play, speed, faster } }) {
  return html`<div class="controls">
    <button onClick=${() => go(-1)} aria-label="To the start" title="Home"><${Icon} name="start" /></button>
    <button onClick=${() => go((at) => at - 1)} aria-label="One step back" title="←"><${Icon} name="back" /></button>
    <button class="play" onClick=${play} aria-label=${playing ? "Pause" : "Play"} title="Space"><${Icon} name=${playing ? "pause" : "play"} /></button>
    <button onClick=${() => go((at) => at + 1)} aria-label="One step on" title="→"><${Icon} name="on" /></button>
    <button onClick=${() => go(last)} aria-label="To the end" title="End"><${Icon} name="end" /></button>
    <button class="speed" onClick=${faster} aria-label=${`Speed: ${SPEEDS[speed][1]}`}>${SPEEDS[speed][1]}</button>
    <output class="where">${step < 0 ? "start" : html`step <b>${number.format(step)}</b>`} <span class="quiet">of ${number.format(Math.max(0, last))}</span></output>
  </div>`;
}

function TraceView({ trace, hash, setHash, theme, back }) {
  const replayer = useMemo(() => new Replayer(trace), [trace]);
  const begin = trace.verdict.found ? trace.verdict.step : trace.steps.length - 1;
  const within = (step) => Math.max(-1, Math.min(trace.steps.length - 1, step));
  const step = within(hash.step ?? begin);
  const selected = hash.block ?? (hash.step === undefined ? (trace.verdict.place?.block ?? -1) : -1);
  const [query, setQuery] = useState("");
  const search = useRef();
  const go = useCallback((to) => setHash((old) => ({ ...old, step: within(typeof to === "function" ? to(within(old.step ?? begin)) : to) })), [trace]);
  const choose = useCallback((block) => setHash((old) => ({ ...old, step: within(old.step ?? begin), block: block < 0 ? undefined : block })), [trace]);
  const found = useMemo(() => searched(trace, query), [trace, query]);
  const now = replayer.at(step);

  const player = usePlayer(step, trace.steps.length - 1, go);
  const toFinding = () => {
    const { place } = trace.verdict;
    setHash((old) => ({ ...old, step: within(trace.verdict.step), block: place?.block > 0 ? place.block : old.block }));
    requestAnimationFrame(() => requestAnimationFrame(() => {
      const at = document.querySelector(".cell.place") || (place && document.getElementById(`request-${place.request}`));
      if (at) at.scrollIntoView({ block: "center", inline: "center" });
    }));
  };
  const toMatch = (by) => {
    if (found.block !== undefined) return choose(found.block);
    if (found.step !== undefined) return go(found.step);
    const all = [...(found.matches || [])];
    if (!all.length) return undefined;
    return go(by > 0 ? (all.find((one) => one > step) ?? all[0]) : (all.reverse().find((one) => one < step) ?? all[0]));
  };
  useKeys(player, { f: toFinding, "/": () => search.current.focus(), n: () => toMatch(1), N: () => toMatch(-1) });

  const two = trace.sides.length > 1 && behind(trace, step, 2) && !now.alike, matches = found.matches;
  const ended = trace.sides.filter((side) => step >= side.steps.length && trace.steps.length > side.steps.length);
  return html`<div class="trace">
    <header class="bar">
      <div class="names">${back && html`<button class="link" onClick=${back}>‹ report</button>`}
        <h1 title=${visible(trace.title)}><bdi>${short(trace.title, 60)}</bdi></h1><span class="on">on <b><bdi>${short(trace.target, 40)}</bdi></b></span></div>
      <div class="search"><input ref=${search} type="search" placeholder="Search steps  ( / )" aria-label="Search steps, a step number, or: block 7" value=${query}
          onInput=${(event) => setQuery(event.target.value)} onKeyDown=${(event) => event.key === "Enter" && toMatch(event.shiftKey ? -1 : 1)} />
        <span class="hits" role="status">${matches ? `${number.format(matches.size)} found` : found.block !== undefined ? "Enter: choose the block" : ""}</span></div>
      <${ThemeButton} theme=${theme} />
    </header>
    <${VerdictCard} trace=${trace} toFinding=${toFinding} step=${step} go=${go} />
    <section class="transport" aria-label="Timeline">
      <${Controls} player=${player} />
      <${Timeline} trace=${trace} step=${step} onStep=${go} theme=${theme.shown} />
    </section>
    <main class="columns">
      <section class="column left" aria-labelledby="steps-title"><h2 id="steps-title">Steps</h2>
        <${StepList} trace=${trace} step=${step} matches=${matches} onStep=${go} /></section>
      <div class="column middle" tabindex="0" role="group" aria-label="State">
        <section aria-labelledby="pool-title"><h2 id="pool-title">Pool <${Legend} /></h2>
          <div class=${two ? "pair" : ""}>${now.sides.map((side, i) => (two || i === now.sides.length - 1) && html`<div key=${i}>
            ${trace.sides.length > 1 && html`<h3><bdi>${now.alike ? `${short(trace.sides[0].name, 40)} and ${short(trace.sides[i].name, 40)}: both show the same` : short(trace.sides[i].name, 40)}</bdi></h3>`}
            <p class="facts">${poolWords(trace, side, i)}</p>
            <${Pool} trace=${trace} side=${side} index=${i} step=${step} names=${now.requests.names} selected=${selected} onSelect=${choose} theme=${theme.shown}
              other=${two && i === now.sides.length - 1 ? now.sides[0] : null} />
            <h3 class="minor">free queue</h3>
            <${FreeQueue} trace=${trace} index=${i} step=${step} side=${side} other=${two ? now.sides[1 - i].queue : null} before=${now.queues && now.queues[i]} change=${changeAt(trace, i, step)} selected=${selected} onSelect=${choose} /></div>`)}</div>
          ${ended.map((side) => html`<p class="note" key=${side.name}>The ${side.role} is not followed any further: it had answered otherwise, and then an operation made no sense for it.</p>`)}</section>
        <section aria-labelledby="tables-title"><h2 id="tables-title">Requests and their block tables <${TableLegend} /></h2>
          <${Tables} trace=${trace} now=${now} step=${step} selected=${selected} onSelect=${choose} place=${step === trace.verdict.step ? trace.verdict.place : null} /></section>
        <section aria-labelledby="contents-title"><h2 id="contents-title">Contents <span class="quiet">${count(trace.hash_block_size, "token")} a node; requests that begin alike share nodes</span></h2>
          <${Contents} trace=${trace} now=${now} selected=${selected} onSelect=${choose} /></section>
      </div>
      <div class="column right" tabindex="0" role="group" aria-label="Details">
        <section aria-labelledby="step-title"><h2 id="step-title">${step < 0 ? "Start" : `Step ${number.format(step)}`}</h2><${StepPanel} trace=${trace} step=${step} /></section>
        <section aria-labelledby="block-title"><h2 id="block-title">${selected >= 0 ? `Block ${selected}` : "Block"}</h2>
          <${BlockPanel} trace=${trace} now=${now} block=${selected < trace.num_blocks ? selected : -1} step=${step} onStep=${go} onSelect=${choose} /></section>
        <section aria-labelledby="about-title"><h2 id="about-title">About</h2><${About} trace=${trace} /></section>
      </div>
    </main>
    <p class="sr" role="status">${step < 0 ? "start" : `step ${step}: ${visible(trace.steps[step].words)} ${outcomeOf(trace, step)}`}</p>
    <p class="sr" role="status">${selected >= 0 ? `block ${selected}: ${blockWords(trace, now.sides[now.sides.length - 1], selected, now.sides.length - 1)[1]}` : ""}</p>
  </div>`;
}

function VerdictCard({ trace, toFinding, step, go }) {
  const { verdict, parting } = trace;
  return html`<section class=${`verdict ${verdict.found ? "bad" : trace.sides.length ? "good" : "note"}`} aria-label="Verdict">
    <div class="line"><span class="badge" aria-hidden="true">${verdict.found ? "✗" : trace.sides.length ? "✓" : "○"}</span><b><bdi>${short(verdict.headline, 150)}</bdi></b>
      ${verdict.severity && html`<span class="tag">${verdict.severity}</span>`}
      ${verdict.found && trace.sides.length > 0 && html`<button class="go" onClick=${toFinding} title="f">${step === verdict.step ? "Show the place" : verdict.step < 0 ? "Go to the start" : `Go to step ${verdict.step}`}</button>`}</div>
    ${verdict.sentence && html`<p class="sentence"><bdi>${visible(verdict.sentence)}</bdi></p>`}
    ${verdict.rule && html`<p class="rule"><b>${verdict.observable}</b> demands: ${visible(verdict.rule)}</p>`}
    ${parting && html`<p class="parting">For comparison, ${visible(parting.headline)}. <bdi>${visible(parting.sentence)}</bdi> <button class="link" onClick=${() => go(parting.step)}>Go to step ${parting.step}</button></p>`}
    ${verdict.text && html`<details><summary>As a terminal shows it</summary><pre>${visible(verdict.text).replaceAll("[U+000A]", "\n")}</pre></details>`}
  </section>`;
}

const Legend = () => html`<span class="legend"><span><i class="key used">a</i>in use, by request a</span><span><i class="key used dot">a</i>and registered</span>
  <span><i class="key candidate dot"></i>free with content</span><span><i class="key"></i>free</span><span><i class="key null"></i>null</span><span><i class="key changed"></i>changed now</span></span>`;
const TableLegend = () => html`<span class="legend"><span><i class="key read"></i>read by the next query</span><span><i class="key hit"></i>from the hit</span>
  <span><i class="key dot"></i>registered</span><span><i class="key null-entry">∅</i>skipped</span></span>`;

function About({ trace }) {
  return html`<div class="panel-body about"><p class="code">${visible(trace.shape)}</p>
    ${(trace.oracles || []).length > 0 && html`<p>Judged by ${trace.oracles.map(visible).join(", ")}.</p>`}
    ${(trace.notes || []).map((one) => html`<p class="note" key=${one}>${visible(one)}</p>`)}
    ${trace.sides.some((side) => (side.hidden || []).length) && html`<p>Not shown by the target: ${trace.sides.flatMap((side) => side.hidden || []).map(visible).join(", ")}.</p>`}
    ${trace.command && html`<p>Repeat it:</p><p class="code">${visible(trace.command)}</p>`}
    ${trace.sides.length > 0 && html`<p class="keys"><kbd>←</kbd> <kbd>→</kbd> step, with <kbd>Shift</kbd> ten · <kbd>Space</kbd> play · <kbd>Home</kbd> <kbd>End</kbd> · <kbd>/</kbd> search, <kbd>n</kbd> next match · <kbd>f</kbd> the finding · in the pool, arrows choose a block</p>`}</div>`;
}
