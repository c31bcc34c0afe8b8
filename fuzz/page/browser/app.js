// What is shown: the document's view, the theme, and the place in the address (`#step=12&block=7`).

const FIELDS = ["trace", "step", "block"];

function readHash() {
  const given = new URLSearchParams(location.hash.slice(1)), hash = {};
  for (const name of FIELDS) if (/^-?\d{1,9}$/.test(given.get(name) || "")) hash[name] = Number(given.get(name));
  return hash;
}

function useHash() {
  const [hash, set] = useState(readHash);
  useEffect(() => {
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
  const [chosen, choose] = useState("");
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

function App({ shown }) {
  const [hash, setHash] = useHash(), theme = useTheme();
  if (shown.document === "trace") return html`<${TraceView} trace=${shown} hash=${hash} setHash=${setHash} theme=${theme} />`;
  const trace = hash.trace === undefined ? undefined : (shown.traces || [])[hash.trace];
  if (trace) return html`<${TraceView} key=${hash.trace} trace=${trace} hash=${hash} setHash=${setHash} theme=${theme} back=${() => setHash({})} />`;
  return html`<${ReportView} report=${shown} theme=${theme} onTrace=${(number) => { setHash({ trace: number }); scrollTo(0, 0); }} />`;
}

render(html`<${App} shown=${JSON.parse(document.getElementById("document").textContent)} />`, document.getElementById("page"));
