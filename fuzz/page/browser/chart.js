// Charts: lines and steps over an axis. Lines differ in colour, dashes and marks; what is drawn can be read out at each
// point, by pointer or keyboard, and stands in a table.

const DASHES = ["", "7 4", "2 3", "10 3 2 3", "5 2 1 2 1 2"];
const MARKS = [
  "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z", "M-3 -3h6v6h-6z", "M0 -4.2L4 3h-8z", "M0 -4.5L4.5 0L0 4.5L-4.5 0z",
  "M-4 -3h8L0 4.2z", "M-1.2 -4h2.4v2.8h2.8v2.4h-2.8v2.8h-2.4v-2.8h-2.8v-2.4h2.8z", "M-4 -1.5h8v3h-8z",
];
const FEW_POINTS = 26, SPACE = { top: 10, right: 16, bottom: 24, height: 230 };
const compact = new Intl.NumberFormat("en-US", { notation: "compact", maximumSignificantDigits: 4 });
const precise = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 6 });

/** A scale from values to pixels, with the values that are marked on its axis. `round`: it ends at such a value;
 * `whole`: there is nothing between two whole numbers. */
function scaleOf(values, log, from, to, most, { round, whole } = {}) {
  const used = log ? values.filter((one) => one > 0) : values;
  let low = used.reduce((one, two) => Math.min(one, two), Infinity), high = used.reduce((one, two) => Math.max(one, two), -Infinity);
  if (!used.length) [low, high] = [1, 10];
  if (log) {
    if (round) [low, high] = [decadePart(low, Math.floor), decadePart(high, Math.ceil)];
    if (low === high) [low, high] = [low / 2, high * 2];
    const ends = [Math.log10(low), Math.log10(high)], spread = ends[1] - ends[0], ticks = [];
    const every = Math.max(1, Math.ceil(spread / most)), parts = spread < 1.2 ? [1, 2, 3, 5, 7] : spread < 3 ? [1, 2, 5] : [1];
    for (let power = Math.floor(ends[0]); power <= Math.ceil(ends[1]); power += every)
      for (const part of parts) {
        const tick = part * 10 ** power;
        if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
      }
    return { at: (value) => from + ((Math.log10(value) - ends[0]) / spread) * (to - from), ticks, has: (value) => value > 0 };
  }
  if (low > 0 && low < 0.7 * high) low = 0;
  if (low === high) [low, high] = low === 0 ? [0, 1] : low > 0 ? [0, 2 * low] : [2 * low, 0];
  const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
  const steps = power * [1, 2, 5, 10].find((one) => one * power >= rough * 0.999), unit = whole ? Math.max(1, steps) : steps, ticks = [];
  if (round) high = unit * Math.ceil(high / unit - 1e-9);
  const first = Math.ceil(low / unit - 1e-9); // counted from there: of numbers that lie too close together, i + 1 may be i
  for (let i = 0; i <= 2 * most && (first + i) * unit <= high + unit * 1e-9; i++) ticks.push((first + i) * unit + 0); // no -0
  return { at: (value) => from + ((value - low) / (high - low)) * (to - from), ticks, has: () => true };
}

/** The 1, 2 or 5 of a decade below a value, or above it. */
function decadePart(value, toward) {
  const power = 10 ** Math.floor(Math.log10(value) + 1e-9), parts = [1, 2, 5, 10].map((part) => part * power);
  return toward === Math.floor ? parts.findLast((one) => one <= value * 1.0001) : parts.find((one) => one >= value * 0.9999);
}

/** What a line has at a place: with steps what holds there, up to its end, else the point that lies there. */
function valueAt(line, x, steps) {
  let low = 0, high = line.xs.length; // the number of points up to x
  while (low < high) {
    const middle = (low + high) >> 1;
    if (line.xs[middle] <= x) low = middle + 1; else high = middle;
  }
  return low > 0 && (line.xs[low - 1] === x || (steps && low < line.xs.length)) ? line.ys[low - 1] : undefined;
}

const said = (value) => (value === undefined ? "–" : (Number.isInteger(value) ? number : precise).format(value));

function useWidth() {
  const box = useRef(), [width, setWidth] = useState(560);
  useLayoutEffect(() => {
    const measure = () => setWidth(Math.max(240, box.current?.clientWidth || 0));
    const watcher = new ResizeObserver(measure);
    measure();
    if (box.current) watcher.observe(box.current);
    return () => watcher.disconnect();
  }, []);
  return [box, width];
}

/** The charts of a document. */
const Charts = ({ charts }) => html`<div class="charts">${charts.map((chart, i) => html`<${ChartView} key=${i} chart=${chart} id=${`chart-${i}`} />`)}</div>`;

function ChartView({ chart, id }) {
  const [box, width] = useWidth(), [chosen, choose] = useKept(`point of ${chart.title}`, -1), [open, setOpen] = useKept(`numbers of ${chart.title}`, false);
  const places = useMemo(() => [...new Set(chart.series.flatMap((line) => line.xs))].sort((a, b) => a - b), [chart]);
  const title = html`<figcaption><h2 id=${id}>${visible(chart.title)}</h2></figcaption>`;
  const note = chart.note && html`<p class="quiet">${visible(chart.note)}</p>`;
  if (!places.length) return html`<figure class="chart" aria-labelledby=${id}>${title}<p class="note">Nothing was recorded to draw here.</p>${note}</figure>`;
  const at = chosen < 0 || chosen >= places.length ? places.length - 1 : chosen, x = places[at];
  const values = chart.series.map((line) => valueAt(line, x, chart.steps));
  const words = `${visible(chart.x)} ${said(x)}: ${chart.series.map((line, i) => `${visible(line.name)} ${said(values[i])}`).join(", ")}`;
  return html`<figure class="chart" aria-labelledby=${id} ref=${box}>${title}${note}
    <${Plot} chart=${chart} places=${places} width=${width} at=${chosen < 0 ? -1 : at} choose=${choose} />
    <input type="range" min="0" max=${places.length - 1} value=${at} disabled=${places.length < 2} aria-label=${`${visible(chart.title)}: point to read`} aria-valuetext=${words} onInput=${(event) => choose(Number(event.target.value))} />
    <div class="read"><span class="read-x">${visible(chart.x)}: <b>${said(x)}</b></span>
      <ul aria-label="Lines">${chart.series.map((line, i) => html`<li key=${i}><${Sample} index=${i} /><bdi>${visible(line.name)}</bdi> <b>${said(values[i])}</b></li>`)}</ul></div>
    <details open=${open} onToggle=${(event) => setOpen(event.target.open)}><summary>The numbers as a table</summary>
      ${open && html`<div class="wide" tabindex="0" role="group" aria-labelledby=${id}><table><thead><tr><th scope="col" class="num">${visible(chart.x)}</th>${chart.series.map((line, i) => html`<th key=${i} scope="col" class="num">${visible(line.name)}</th>`)}</tr></thead>
        <tbody>${places.map((place) => html`<tr key=${place}><th scope="row" class="num">${said(place)}</th>${chart.series.map((line, i) => html`<td key=${i} class="num">${said(valueAt(line, place, chart.steps))}</td>`)}</tr>`)}</tbody></table></div>`}</details></figure>`;
}

const Sample = ({ index }) => html`<svg class="sample" width="34" height="12" aria-hidden="true"><g class=${`line-${index % 6}`}><path class="line" d="M1 6H33" stroke-dasharray=${DASHES[index % DASHES.length]} /><path class="mark" d=${MARKS[index % MARKS.length]} transform="translate(17 6)" /></g></svg>`;

function Plot({ chart, places, width, at, choose }) {
  // Drawn again for another width only: the mark of the chosen point lies over it.
  const { x, y, picture } = useMemo(() => drawn(chart, places, width), [chart, places, width]);
  const bottom = SPACE.height - SPACE.bottom;
  const point = (event) => {
    const wanted = event.clientX - event.currentTarget.getBoundingClientRect().left;
    let best = 0;
    places.forEach((place, i) => { if (x.has(place) && Math.abs(x.at(place) - wanted) < Math.abs(x.at(places[best]) - wanted)) best = i; });
    choose(best);
  };
  const over = at >= 0 && x.has(places[at]) ? x.at(places[at]) : -1;
  const label = `${visible(chart.title)}: ${visible(chart.y)} over ${visible(chart.x)}; ${count(chart.series.length, "line")}, ${count(places.length, "point")}. The numbers are in the table below.`;
  return html`<div class="axis-name" aria-hidden="true">${visible(chart.y)}${chart.log_y ? " (logarithmic)" : ""}</div>
    <svg class="plot" role="img" aria-label=${label} width=${width} height=${SPACE.height} viewBox=${`0 0 ${width} ${SPACE.height}`} onPointerMove=${point} onPointerDown=${point}>${picture}
      ${over >= 0 && html`<g><path class="cursor" d=${`M${over} ${SPACE.top}V${bottom}`} />${chart.series.map((line, i) => {
        const value = valueAt(line, places[at], chart.steps);
        return value !== undefined && y.has(value) && html`<path key=${i} class=${`mark line-${i % 6}`} d=${MARKS[i % MARKS.length]} transform=${`translate(${over} ${y.at(value)}) scale(1.4)`} />`;
      })}</g>`}</svg>
    <div class="axis-name under" aria-hidden="true">${visible(chart.x)}${chart.log_x ? " (logarithmic)" : ""}</div>`;
}

function drawn(chart, places, width) {
  const bottom = SPACE.height - SPACE.bottom;
  const y = scaleOf(chart.series.flatMap((line) => line.ys), chart.log_y, bottom, SPACE.top, 5, { round: true, whole: chart.steps && chart.series.every((line) => line.ys.every(Number.isInteger)) });
  const names = y.ticks.map((tick) => compact.format(tick)), left = 14 + 7 * Math.max(1, ...names.map((name) => name.length));
  const x = scaleOf(places, chart.log_x, left, width - SPACE.right, Math.max(2, Math.floor((width - left) / 90)));
  const lines = chart.series.map((line, i) => {
    const points = line.xs.map((place, j) => [place, line.ys[j]]).filter(([place, value]) => x.has(place) && y.has(value)).map(([place, value]) => [x.at(place), y.at(value)]);
    const path = points.map(([px, py], j) => (j === 0 ? `M${px.toFixed(1)} ${py.toFixed(1)}` : chart.steps ? `H${px.toFixed(1)}V${py.toFixed(1)}` : `L${px.toFixed(1)} ${py.toFixed(1)}`)).join("");
    const every = points.length <= FEW_POINTS ? 1 : Math.ceil(points.length / 10);
    return html`<g key=${i} class=${`line-${i % 6}`}><path class="line" d=${path} stroke-dasharray=${DASHES[i % DASHES.length]} />
      ${points.map(([px, py], j) => (j + i) % every === 0 && html`<path key=${j} class="mark" d=${MARKS[i % MARKS.length]} transform=${`translate(${px.toFixed(1)} ${py.toFixed(1)})`} />`)}</g>`;
  });
  const picture = html`<g class="grid">${y.ticks.map((tick, i) => html`<g key=${tick}><path d=${`M${left} ${y.at(tick)}H${width - SPACE.right}`} /><text x=${left - 6} y=${y.at(tick) + 4} text-anchor="end">${names[i]}</text></g>`)}
    ${x.ticks.map((tick) => html`<g key=${tick}><path d=${`M${x.at(tick)} ${bottom}v4`} /><text x=${x.at(tick)} y=${bottom + 17} text-anchor="middle">${compact.format(tick)}</text></g>`)}
    <path class="base" d=${`M${left} ${bottom}H${width - SPACE.right}`} /></g>${lines}`;
  return { x, y, picture };
}
