// From the document to the state after any step: changes are applied forward, from the nearest checkpoint.

const CHECKPOINT_BYTES = 160e6;
const NEAR = 8, MOST_NEAR = 6; // on the way back: a checkpoint every so many steps, and how many of these are kept

/** The block ids of a packed list: `-n, b` stands for n blocks from b on. */
function unpacked(list, from, count = Infinity) {
  const ids = [];
  let at = from;
  while (at < list.length && ids.length < count) {
    if (list[at] < 0) {
      for (let i = 0; i < -list[at]; i++) ids.push(list[at + 1] + i);
      at += 2;
    } else ids.push(list[at++]);
  }
  return [ids, at];
}

/** The runs of entries that a row of `Change.tables` has changed: [first place, ids]. */
function runsOf(row) {
  const runs = [];
  for (let at = 3; at < row.length; ) {
    const [ids, next] = unpacked(row, at + 2, row[at + 1]);
    runs.push([row[at], ids]);
    at = next;
  }
  return runs;
}

/** What one side shows after a step. */
class SideState {
  constructor(numBlocks, numGroups) {
    this.ref = new Int32Array(numBlocks);
    this.label = new Int32Array(numBlocks).fill(-1);
    this.first = new Int32Array(numBlocks).fill(-1);
    this.queue = new Int32Array(0);
    this.tables = Array.from({ length: numGroups }, () => new Map());
    this.registered = Array.from({ length: numGroups }, () => new Map());
    this.content = new Map(); // label to [group, node]
    this.small = {};
    this.stamps = { label: -1, tables: -1, counts: -1 }; // the steps that changed these last: what was made of them may be kept
  }

  copy() {
    const other = Object.create(SideState.prototype);
    other.stamps = { ...this.stamps };
    other.kept = this.kept;
    other.counted = this.counted;
    other.ref = this.ref.slice();
    other.label = this.label.slice();
    other.first = this.first.slice();
    other.queue = this.queue; // replaced, never changed
    other.tables = this.tables.map((rows) => new Map(rows));
    other.registered = this.registered.map((rows) => new Map(rows));
    other.content = new Map(this.content);
    other.small = { ...this.small };
    return other;
  }

  apply(change, step) {
    if (change.label || change.first || change.named) this.stamps.label = step;
    if (change.tables) this.stamps.tables = step;
    if (change.ref || change.label) this.stamps.counts = step;
    for (const name of ["ref", "label", "first"]) {
      const pairs = change[name] || [];
      for (let i = 0; i < pairs.length; i += 2) this[name][pairs[i]] = pairs[i + 1];
    }
    if (change.queue) this.queue = edited(this.queue, change.queue);
    for (const row of change.tables || []) {
      const [group, request, length] = row;
      if (length < 0) {
        this.tables[group].delete(request);
        continue;
      }
      const table = (this.tables[group].get(request) || []).slice(0, length);
      for (const [first, ids] of runsOf(row)) for (let i = 0; i < ids.length; i++) table[first + i] = ids[i];
      this.tables[group].set(request, table);
    }
    const counts = change.registered || [];
    for (let i = 0; i < counts.length; i += 3) {
      if (counts[i + 2] < 0) this.registered[counts[i]].delete(counts[i + 1]);
      else this.registered[counts[i]].set(counts[i + 1], counts[i + 2]);
    }
    const named = change.named || [];
    for (let i = 0; i < named.length; i += 3) this.content.set(named[i], [named[i + 1], named[i + 2]]);
    Object.assign(this.small, change.small);
  }

  /** Per block the number of its first holder, -1 for none; a table that holds it later does not count. */
  owners() {
    if (this.kept?.stamp === this.stamps.tables) return this.kept.owner;
    const owner = new Int32Array(this.ref.length).fill(-1);
    for (const rows of this.tables)
      for (const [request, table] of rows)
        for (const block of table) if (block > 0 && block < owner.length && owner[block] < 0) owner[block] = request;
    this.kept = { stamp: this.stamps.tables, owner };
    return owner;
  }

  /** All places in tables that hold a block: [request, group, entry]. */
  holders(block) {
    const found = [];
    this.tables.forEach((rows, group) => {
      for (const [request, table] of rows)
        table.forEach((one, entry) => one === block && found.push([request, group, entry]));
    });
    return found;
  }
}

/** The queue after these edits, of which the last place comes first. */
function edited(queue, edits) {
  const all = edits.map(([place, gone, ...rest]) => [place, gone, unpacked(rest, 0)[0]]).reverse();
  const result = new Int32Array(all.reduce((length, [, gone, ids]) => length - gone + ids.length, queue.length));
  let from = 0, to = 0;
  for (const [place, gone, ids] of all) {
    result.set(queue.subarray(from, place), to);
    to += place - from;
    result.set(ids, to);
    to += ids.length;
    from = place + gone;
  }
  result.set(queue.subarray(from), to);
  return result;
}

/** What is known of the requests after a step, on all sides. */
class Requests {
  constructor() {
    this.states = new Map(); // number to the fields of RequestState
    this.tokens = new Map();
    this.chains = new Map();
    this.names = new Map(); // block to how many names it has, and how much of it the first covers: of those that differ from others
    this.junctions = new Map();
    this.stamp = -1; // the step that changed the chains last
  }

  copy() {
    const other = new Requests();
    other.stamp = this.stamp;
    for (const name of ["states", "tokens", "chains", "names", "junctions"]) other[name] = new Map(this[name]);
    return other;
  }

  apply(step, number) {
    if (step.chain || (step.requests || []).some((row) => !row[1])) this.stamp = number;
    for (const row of step.requests || []) {
      const [request, live, computed, scheduled, known, attached, hit, arriving, preemptions, reads] = row;
      if (!live) for (const name of ["states", "tokens", "chains", "junctions"]) this[name].delete(request);
      else this.states.set(request, { computed, scheduled, known, attached, hit, arriving, preemptions, reads });
    }
    const names = step.names || [], ends = step.junctions || [];
    for (let i = 0; i < names.length; i += 4) {
      if (names[i + 1]) this.names.set(names[i], { count: names[i + 1], covers: names[i + 2], size: names[i + 3] });
      else this.names.delete(names[i]);
    }
    for (let i = 0; i < ends.length; i += 2) this.junctions.set(ends[i], ends[i + 1]);
    for (const [request, from, ...tokens] of step.tokens || []) {
      // Tokens are only ever added, so all states share the list; how many are known a state says itself.
      const list = from ? this.tokens.get(request) : [];
      for (let i = 0; i < tokens.length; i++) list[from + i] = tokens[i];
      this.tokens.set(request, list);
    }
    for (const [request, from, ...nodes] of step.chain || [])
      this.chains.set(request, (this.chains.get(request) || []).slice(0, from).concat(nodes));
  }
}

/** The first step at which the second side has shown something else than the first; -1 for the construction. */
function partsAt(trace) {
  const [first, second] = trace.sides;
  if (!second || JSON.stringify(first.start) !== JSON.stringify(second.start)) return -1;
  const step = second.steps.findIndex((change, i) => change !== first.steps[i]);
  return step < 0 ? Infinity : step;
}

/** Goes to any step of a trace. Step -1 is the core as it was built. */
class Replayer {
  constructor(trace) {
    this.trace = trace;
    this.last = trace.steps.length - 1;
    const bytes = trace.num_blocks * 16 * Math.max(1, trace.sides.length);
    this.spacing = Math.max(16, Math.ceil((trace.steps.length * bytes) / CHECKPOINT_BYTES));
    this.checkpoints = new Map();
    this.near = new Map();
    this.parts = partsAt(trace);
    this.begin();
  }

  begin() {
    this.step = -1;
    this.queues = null; // of each side, as they were before this step; null at the start
    this.requests = new Requests();
    this.sides = this.trace.sides.map((side, i) => {
      if (i && this.parts > -1) return null;
      const state = new SideState(this.trace.num_blocks, this.trace.groups.length);
      state.apply(side.start, -1);
      return state;
    });
    this.sides = this.sides.map((side) => side || this.sides[0]); // as long as both show the same, they are one
  }

  /** True if both sides have shown the same so far. */
  get alike() {
    return this.sides.length > 1 && this.sides[0] === this.sides[1];
  }

  at(wanted) {
    if (wanted < this.step) {
      let from = Math.floor((wanted - 1) / this.spacing) * this.spacing; // before it: `queues` is of the step before
      while (from >= 0 && !this.checkpoints.has(from)) from -= this.spacing;
      for (const step of this.near.keys()) if (step < wanted && step > from) from = step;
      if (from < 0) this.begin();
      else this.restore(from);
      while (this.step < wanted) {
        this.forward();
        if (this.step % NEAR === 0 && this.step < wanted && wanted - this.step <= NEAR * MOST_NEAR) this.keep(this.near);
      }
      while (this.near.size > MOST_NEAR) this.near.delete(this.near.keys().next().value);
    }
    while (this.step < wanted) this.forward();
    return this;
  }

  keep(place) {
    if (!place.has(this.step)) place.set(this.step, { requests: this.requests.copy(), sides: this.copied(this.sides) });
  }

  copied(sides) {
    const copies = sides.map((side, i) => (i && side === sides[0] ? null : side.copy()));
    return copies.map((side) => side || copies[0]);
  }

  restore(from) {
    const kept = this.checkpoints.get(from) || this.near.get(from);
    this.step = from;
    this.requests = kept.requests.copy();
    this.sides = this.copied(kept.sides);
  }

  forward() {
    this.step++;
    this.queues = this.sides.map((side) => side.queue);
    this.requests.apply(this.trace.steps[this.step], this.step);
    if (this.step === this.parts) this.sides = this.sides.map((side, i) => (i ? side.copy() : side));
    this.trace.sides.forEach((side, i) => {
      if (this.step < side.steps.length && (!i || this.step >= this.parts)) this.sides[i].apply(side.steps[this.step], this.step);
    });
    if (this.step % this.spacing === 0) this.keep(this.checkpoints);
  }
}

/** The steps that have changed a block, on one side: [step, what]. */
function historyOf(trace, side, block) {
  const found = [];
  let references = 0;
  const look = (change, step) => {
    const said = [];
    for (const row of change.tables || [])
      for (const [first, ids] of row[2] < 0 ? [] : runsOf(row)) {
        const at = ids.indexOf(block);
        if (at >= 0 && block > 0) said.push(`entry ${first + at} of ${visible(trace.requests[row[1]])}, group ${row[0]}`);
      }
    const of = (name) => {
      const pairs = change[name] || [];
      for (let i = 0; i < pairs.length; i += 2) if (pairs[i] === block) return pairs[i + 1];
      return undefined;
    };
    const ref = of("ref");
    if (ref !== undefined) {
      if (!ref) said.push("free");
      else if (ref < references) said.push(`still held by ${ref}`);
      else if (!said.length || ref > 1) said.push(ref > 1 ? `shared by ${ref}` : "held");
      references = ref;
    }
    const label = of("label");
    if (label !== undefined) said.push(label < 0 ? "forgets its content" : `registered as content ${label}`);
    if (said.length) found.push([step, said.join("; ")]);
  };
  look(side.start, -1);
  side.steps.forEach(look);
  return found;
}
