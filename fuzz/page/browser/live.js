// A run while it goes on: newer documents come from the server, and take the place of the one that is shown. Views keep
// their state: what is open, chosen, focused and scrolled to stays.

const LOST_AFTER = 5; // tries to reach the server again
const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });

/** The newest document, whether there is a connection, and whether it is shown as it comes. */
function useNewest(first) {
  const [state, setState] = useState({ shown: first, newest: first, at: new Date(), paused: false, tries: 0 });
  useEffect(() => {
    if (first.progress.ended) return undefined;
    const source = new EventSource("events");
    source.onmessage = (event) => {
      const newest = completed(JSON.parse(event.data));
      if (newest.progress.ended) source.close();
      setState((old) => ({ ...old, newest, at: new Date(), tries: 0, shown: old.paused ? old.shown : newest }));
    };
    source.onerror = () => setState((old) => {
      if (source.readyState === EventSource.CLOSED || old.tries + 1 >= LOST_AFTER) source.close();
      return { ...old, tries: source.readyState === EventSource.CLOSED ? LOST_AFTER : old.tries + 1 };
    });
    return () => source.close();
  }, []);
  const pause = () => setState((old) => ({ ...old, paused: !old.paused, shown: old.paused ? old.newest : old.shown }));
  return [state, pause];
}

function LivePage({ shown }) {
  const [state, pause] = useNewest(shown);
  const ended = state.newest.progress.ended, found = (state.newest.cards || []).length;
  const sign = ended ? { bad: "✗", good: "✓" }[state.newest.mood] || "○" : found ? "✗" : "●";
  document.title = `${sign} ${visible(state.newest.verdict)} - ${visible(state.newest.title)}`;
  return html`<${App} shown=${state.shown} bar=${html`<${LiveBar} state=${state} pause=${pause} />`} />`;
}

function LiveBar({ state, pause }) {
  const { progress, cards = [] } = state.newest, over = Boolean(progress.ended), lost = !over && state.tries > 0;
  const words = over ? visible(progress.words) : state.tries >= LOST_AFTER
    ? `The server of this page is gone. What is shown is of ${clock.format(state.at)}; the run writes its findings to its folder.`
    : lost ? `Not connected, trying again. What is shown is of ${clock.format(state.at)}.` : visible(progress.words);
  const name = over ? "ended" : lost ? "lost" : state.paused ? "paused" : "live";
  const said = `${over ? "The run has ended. " : lost ? "Not connected. " : ""}${count(cards.length, "finding")}${over ? "" : " so far"}`;
  return html`<section class=${`live ${over ? "over" : lost ? "lost" : state.paused ? "paused" : ""}`} aria-label="Live">
    <span class="state">${name}</span>
    ${!over && progress.share >= 0 && html`<progress max="1" value=${progress.share} aria-label="How far the run is">${Math.round(100 * progress.share)} %</progress>`}
    <span class="words"><bdi>${words}</bdi></span>
    ${(!over || state.paused) && html`<button onClick=${pause} aria-pressed=${state.paused}>Pause updates</button>`}
    <p class="sr" role="status">${said}</p></section>`;
}
