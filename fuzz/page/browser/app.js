// What is shown: the document's view, the theme, and the place in the address (`#step=12&block=7`).

const FIELDS = ["trace", "step", "block", "length"];

function readHash() {
  const given = new URLSearchParams(location.hash.slice(1)), hash = {};
  for (const name of FIELDS) if (/^-?\d{1,15}$/.test(given.get(name) || "")) hash[name] = Number(given.get(name));
  return hash;
}

function useHash() {
  const [hash, set] = useState(readHash);
  useLayoutEffect(() => {
    const changed = () => set(readHash());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  const put = useCallback((next) => set((old) => {
    const now = typeof next === "function" ? next(old) : next;
    const text = FIELDS.filter((name) => now[name] !== undefined).map((name) => `${name}=${now[name]}`).join("&");
    history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
    return now;
  }), []);
  return [hash, put];
}

/** `auto` follows the system; a choice lasts as long as the page is open. */
function useTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const [chosen, choose] = useKept("theme", "");
  const [system, setSystem] = useState(dark.matches);
  useEffect(() => {
    const changed = () => setSystem(dark.matches);
    dark.addEventListener("change", changed);
    return () => dark.removeEventListener("change", changed);
  }, []);
  const shown = chosen || (system ? "dark" : "light");
  document.documentElement.dataset.theme = shown;
  return { shown, toggle: () => choose(shown === "dark" ? "light" : "dark") };
}

const ThemeButton = ({ theme }) => html`<button class="theme" onClick=${theme.toggle} aria-label=${`Use the ${theme.shown === "dark" ? "light" : "dark"} theme`}>${theme.shown === "dark" ? "☀" : "☾"}</button>`;

/** A trace of which no core was built: there is nothing to go through. */
function NothingView({ trace, theme, back }) {
  return html`<div class="report"><header class="bar"><div class="names">${back && html`<button class="link" onClick=${back}>‹ report</button>`}
      <h1><bdi>${visible(trace.title)}</bdi></h1><span class="on">on <b><bdi>${visible(trace.target)}</bdi></b></span></div><${ThemeButton} theme=${theme} /></header>
    <${VerdictCard} trace=${trace} toFinding=${() => {}} go=${() => {}} step=${-1} />
    <main class="sheet"><${About} trace=${trace} /></main></div>`;
}

/** `bar` stands over a report that grows; a file has none. */
function App({ shown, bar }) {
  const [hash, setHash] = useHash(), theme = useTheme();
  const view = (trace) => (trace.sides.length ? TraceView : NothingView);
  if (shown.document === "plan") return html`<${PlanView} plan=${shown} hash=${hash} setHash=${setHash} theme=${theme} />`;
  if (shown.document === "story") return html`<${StoryView} story=${shown} hash=${hash} setHash=${setHash} theme=${theme} />`;
  if (shown.document === "trace") return html`<${view(shown)} trace=${shown} hash=${hash} setHash=${setHash} theme=${theme} />`;
  const trace = hash.trace === undefined ? undefined : (shown.traces || [])[hash.trace];
  if (trace) return html`<${view(trace)} key=${hash.trace} trace=${trace} hash=${hash} setHash=${setHash} theme=${theme} back=${() => setHash({})} />`;
  return html`<${ReportView} report=${shown} theme=${theme} bar=${bar} onTrace=${(number) => { setHash({ trace: number }); scrollTo(0, 0); }} />`;
}

/** The document, completed: a field at its default is not written, nor is a change that the first side has made as well. */
function completed(shown) {
  if (shown.document === "story") completeStory(shown);
  for (const trace of shown.document === "trace" ? [shown] : shown.traces || []) {
    trace.verdict.step ??= -1;
    for (const side of trace.sides) side.steps = side.steps.map((change, step) => change ?? trace.sides[0].steps[step]);
  }
  return shown;
}

const whole = completed(JSON.parse(document.getElementById("document").textContent));
render(html`<${typeof LivePage === "undefined" ? App : LivePage} shown=${whole} />`, document.getElementById("page"));
