// A page that is written anew while its run goes on: it loads itself again, and what a reader has chosen, focused and
// scrolled to stays. What was not written for a while has probably ended; then it tries ever more seldom, and gives up.

const EVERY_S = 3, SILENT_S = 60, GIVEN_UP_S = 3600;
const LEFT = `blockproof ${location.pathname}`;
const PLACES = ".verdict, .figures, .card, .chart, .tables > section", FOCUSABLE = "a, button, input, summary, [tabindex]";
const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" }), day = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });

/** What the page before this one has left in this tab; nothing if it was the first, or the browser keeps nothing. */
function left() {
  try { return JSON.parse(sessionStorage.getItem(LEFT)) || {}; } catch { return {}; }
}
const before = left();

/** What names an element on this page and the next: its title or words. */
const nameOf = (one) => `${one.tagName} ${one.getAttribute("aria-label") || (one.querySelector("h2, pre") || one).textContent}`.slice(0, 300);
const alike = (name, which) => [...document.querySelectorAll(which)].filter((one) => nameOf(one) === name);

/** Where an element is: its name, and its number among those that have it. */
const whereIs = (one, which) => one && { name: nameOf(one), at: alike(nameOf(one), which).indexOf(one), top: one.getBoundingClientRect().top };

function leave(shown) {
  const first = [...document.querySelectorAll(PLACES)].find((one) => one.getBoundingClientRect().bottom > 0);
  const focused = document.activeElement?.matches(FOCUSABLE) ? document.activeElement : null;
  const place = { scroll: scrollY, first: whereIs(first, PLACES), focus: whereIs(focused, FOCUSABLE) };
  const now = { kept, place, found: (shown.cards || []).length, ended: Boolean(shown.progress.ended) };
  try { sessionStorage.setItem(LEFT, JSON.stringify(now)); } catch { /* then the next page begins at its top */ }
}

/** Scroll and focus as on the page before. */
function goBack({ scroll = 0, first, focus }) {
  const seen = first && alike(first.name, PLACES)[first.at];
  if (focus) alike(focus.name, FOCUSABLE)[focus.at]?.focus({ preventScroll: true });
  if (scroll > 0) scrollTo(0, seen ? scrollY + seen.getBoundingClientRect().top - first.top : scroll);
}

/** Seconds until this page loads itself again, counted from when it was loaded; none if it does no more. */
function untilNext({ ended, written, every = 0 }, age) {
  if (ended || age > GIVEN_UP_S) return null;
  return age > silentFrom(every) ? age : Math.max(EVERY_S, every + 1 - age);
}
const silentFrom = (every) => Math.max(SILENT_S, 4 * every);
const ageOf = ({ written = 0 }) => Math.max(0, Date.now() / 1000 - written);

/** Loads the page again when it is time to, unless the reader is about something: holds the pointer, has marked text. */
function useAgain(shown, paused) {
  const [age, setAge] = useState(ageOf(shown.progress));
  useEffect(() => {
    const wait = untilNext(shown.progress, ageOf(shown.progress)), loaded = performance.now();
    let held = false;
    const hold = (event) => { held = event.type === "pointerdown"; }, going = () => leave(shown);
    const timer = !shown.progress.ended && setInterval(() => {
      setAge(ageOf(shown.progress));
      const busy = paused || held || !getSelection().isCollapsed;
      if (wait !== null && !busy && performance.now() - loaded > 1000 * wait) location.reload();
    }, 250);
    for (const kind of ["pointerdown", "pointerup", "pointercancel"]) addEventListener(kind, hold);
    addEventListener("pagehide", going);
    return () => {
      clearInterval(timer);
      for (const kind of ["pointerdown", "pointerup", "pointercancel"]) removeEventListener(kind, hold);
      removeEventListener("pagehide", going);
    };
  }, [paused]);
  return age;
}

function LivePage({ shown }) {
  const { progress, cards = [] } = shown, over = Boolean(progress.ended);
  const [paused, pause] = useKept("paused", false), [said, say] = useState(""), age = useAgain(shown, paused);
  useLayoutEffect(() => {
    history.scrollRestoration = "manual";
    goBack(before.place || {});
    const news = `${over ? "The run has ended. " : ""}${count(cards.length, "finding")}${over ? "" : " so far"}`;
    const same = before.found === undefined || (before.found === cards.length && before.ended === over);
    const timer = !same && setTimeout(() => say(news), 200); // what is there from the beginning is not read out
    return () => clearTimeout(timer);
  }, []);
  const sign = over ? { bad: "✗", good: "✓" }[shown.mood] || "○" : cards.length ? "✗" : "●";
  document.title = `${sign} ${visible(shown.verdict)} - ${visible(shown.title)}`;
  const silent = !over && age > silentFrom(progress.every || 0);
  return html`<${App} shown=${shown} bar=${html`<${LiveBar} progress=${progress} silent=${silent} paused=${paused} pause=${pause} said=${said} />`} />`;
}

function LiveBar({ progress, silent, paused, pause, said }) {
  const over = Boolean(progress.ended), at = (silent ? day : clock).format(1000 * progress.written);
  const words = silent
    ? `Not written since ${at}: the run has probably ended without a last word, or waits for its target. What is shown is of then; findings are in its folder.`
    : `${visible(progress.words)}; written ${at}`;
  const name = over ? "ended" : silent ? "silent" : paused ? "paused" : "live";
  return html`<section class=${`live ${over ? "over" : silent ? "lost" : paused ? "paused" : ""}`} aria-label="Live">
    <span class="state">${name}</span>
    ${!over && !silent && progress.share >= 0 && html`<progress max="1" value=${progress.share} aria-label="How far the run is">${Math.round(100 * progress.share)} %</progress>`}
    <span class="words"><bdi>${words}</bdi></span>
    ${silent && html`<button onClick=${() => location.reload()}>Load it again</button>`}
    ${!over && !silent && html`<button onClick=${() => pause(!paused)} aria-pressed=${paused}>Pause updates</button>`}
    <p class="sr" role="status">${said}</p></section>`;
}
