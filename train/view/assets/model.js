// The index and what is computed from it. Nothing here touches the page: node runs it in tests.

/**
 * @typedef {Object} Filter
 * @property {Object<string, string>} pick  column or `slice:NAME` → the chosen value ("" for all)
 * @property {string} part      name of a reward part, "" for none
 * @property {string} partIs    "", "low" (under 0.5) or "high"
 * @property {string} text      searched for, in lower case
 */

/** Columns that are chosen from a list of names. */
const NAMED = ["why", "stop", "wrong", "label", "said"];
const TASK_NAMED = ["family", "track"];

/** Class of an outcome: right, partly, wrong, or none where the infrastructure failed. */
function outcomeClass(value) {
  if (value === null) return "none";
  if (value >= 1 - 1e-9) return "right";
  return value > 0 ? "partly" : "wrong";
}

/** The value of a facet for row `i`, as text. */
function facetValue(ix, name, i) {
  const rows = ix.rows, task = rows.task[i];
  if (name === "set") return ix.sets[rows.set[i]].key;
  if (name === "step") return rows.step[i] < 0 ? "" : String(rows.step[i]);
  if (name === "outcome") return outcomeClass(rows.outcome[i]);
  if (NAMED.includes(name)) return ix.names[name][rows[name][i]];
  if (TASK_NAMED.includes(name)) return ix.names[name][ix.tasks[name][task]];
  const slice = ix.tasks.slices[name.slice("slice:".length)];
  const number = slice.of[task];
  return number < 0 ? "" : slice.values[number];
}

/** Facets that have more than one value or are picked: their values, and how many rollouts have each. */
function facets(ix, pick = {}) {
  const n = ix.rows.task.length;
  const names = ["set", "step", "family", "track", "outcome", "why", "stop", "wrong", "label", "said",
    ...Object.keys(ix.tasks.slices).map((name) => `slice:${name}`)];
  const found = [];
  for (const name of names) {
    const counts = new Map();
    for (let i = 0; i < n; i++) {
      const value = facetValue(ix, name, i);
      counts.set(value, (counts.get(value) || 0) + 1);
    }
    if (name !== "wrong") counts.delete("");
    if (counts.size > 1 || pick[name]) found.push({ name, values: ordered(counts) });
  }
  const same = (a, b) => JSON.stringify(a.values) === JSON.stringify(b.values);
  // a slice may say what a column says too
  const twice = (f) => f.name.startsWith("slice:") && found.some((g) => !g.name.startsWith("slice:") && same(f, g));
  return found.filter((f) => pick[f.name] || !twice(f));
}

function ordered(counts) {
  const numeric = [...counts.keys()].every((v) => v !== "" && !Number.isNaN(Number(v)));
  const list = [...counts].map(([value, count]) => ({ value, count }));
  return numeric
    ? list.sort((a, b) => Number(a.value) - Number(b.value))
    : list.sort((a, b) => b.count - a.count || (a.value < b.value ? -1 : 1));
}

/** A test of one facet on row numbers, with its comparisons made once. */
function facetTest(ix, name, wanted) {
  const rows = ix.rows;
  if (name === "outcome") return (i) => outcomeClass(rows.outcome[i]) === wanted;
  if (name === "step") return (i) => rows.step[i] === Number(wanted);
  if (name === "set") {
    const set = ix.sets.findIndex((s) => s.key === wanted);
    return (i) => rows.set[i] === set;
  }
  if (NAMED.includes(name)) {
    const number = ix.names[name].indexOf(wanted);
    return (i) => number >= 0 && rows[name][i] === number;
  }
  const slice = TASK_NAMED.includes(name) ? null : ix.tasks.slices[name.slice("slice:".length)];
  const values = slice ? slice.values : ix.names[name];
  const of = slice ? slice.of : ix.tasks[name];
  const number = values.indexOf(wanted);
  return (i) => number >= 0 && of[rows.task[i]] === number;
}

/**
 * Rows that pass a filter, in the index's order.
 * @param {{row: string[], task: string[]}} texts lower-case texts by row and by task, as far as read
 */
function filterRows(ix, filter, texts) {
  const tests = [];
  for (const [name, wanted] of Object.entries(filter.pick)) {
    if (wanted === "") continue;
    tests.push(facetTest(ix, name, wanted === NOTHING ? "" : wanted));
  }
  if (filter.part && filter.partIs) {
    const values = ix.parts[filter.part], high = filter.partIs === "high";
    tests.push((i) => values[i] !== null && (values[i] >= 0.5) === high);
  }
  if (filter.text) tests.push(textTest(ix, filter.text, texts));
  const found = [], n = ix.rows.task.length;
  for (let i = 0; i < n; i++) {
    let passes = true;
    for (let t = 0; t < tests.length && passes; t++) passes = tests[t](i);
    if (passes) found.push(i);
  }
  return found;
}

/** Stands for the empty value where "" means all. */
const NOTHING = "\u0000none";

function textTest(ix, text, texts) {
  const inTask = ix.tasks.id.map((id, t) =>
    id.toLowerCase().includes(text) || (texts.task[t] || "").includes(text));
  return (i) => inTask[ix.rows.task[i]] || (texts.row[i] || "").includes(text);
}

/** Keys to sort by; a row without a value comes last. */
const SORTS = ["order", "reward", "outcome", "advantage", "length", "seconds"];

function sortRows(ix, rows, key, descending) {
  const copy = [...rows];
  if (key === "order") return descending ? copy.reverse() : copy;
  const values = ix.rows[key], sign = descending ? -1 : 1;
  return copy.sort((a, b) => {
    const x = values[a], y = values[b];
    if (x === null || y === null) return (x === null ? 1 : 0) - (y === null ? 1 : 0) || a - b;
    return sign * (x - y) || a - b;
  });
}

/** The first of the rows that the model got wrong, else the first that has no outcome; undefined where all are right. */
function firstFailure(ix, rows) {
  const is = (...classes) => rows.find((i) => classes.includes(outcomeClass(ix.rows.outcome[i])));
  return is("wrong", "partly") ?? is("none");
}

/** All rollouts of row `i`'s task in its step and set. */
function groupOf(ix, i) {
  const r = ix.rows, found = [];
  for (let k = 0; k < r.task.length; k++) {
    if (r.task[k] === r.task[i] && r.step[k] === r.step[i] && r.set[k] === r.set[i]) found.push(k);
  }
  return found;
}

/** Rows as groups (one task in one step of one set), in the order of their first rows. */
function groupRows(ix, rows) {
  const r = ix.rows, groups = new Map();
  for (const i of rows) {
    const key = `${r.set[i]} ${r.step[i]} ${r.task[i]}`;
    const group = groups.get(key);
    if (group) group.push(i);
    else groups.set(key, [i]);
  }
  return [...groups.values()];
}

function mean(values) {
  let sum = 0, n = 0;
  for (const v of values) if (v !== null && v !== undefined) { sum += v; n++; }
  return n ? sum / n : null;
}

/** By set, the mean reward and outcome of each step; steps logged without rollouts are added. */
function trend(ix, rows, filtered) {
  const sets = new Map();
  for (const i of rows) {
    const step = ix.rows.step[i], set = ix.rows.set[i];
    if (step < 0) continue;
    if (!sets.has(set)) sets.set(set, new Map());
    const steps = sets.get(set);
    if (!steps.has(step)) steps.set(step, []);
    steps.get(step).push(i);
  }
  const found = [...sets].map(([set, steps]) => ({
    key: ix.sets[set].key,
    points: [...steps].map(([step, mine]) => ({
      step, count: mine.length,
      reward: mean(mine.map((i) => ix.rows.reward[i])),
      outcome: mean(mine.map((i) => ix.rows.outcome[i])),
    })),
  }));
  if (!filtered) for (const m of ix.metrics) addLogged(ix, found, m);
  for (const line of found) line.points.sort((a, b) => a.step - b.step);
  return found.filter((line) => line.points.length > 1);
}

function addLogged(ix, found, m) {
  const key = m.set === null ? `${ix.runs[m.run]}: logged` : ix.sets[m.set].key;
  let line = found.find((l) => l.key === key);
  if (!line) found.push(line = { key, points: [] });
  if (!line.points.some((p) => p.step === m.step)) {
    line.points.push({ step: m.step, count: 0, reward: m.reward, outcome: m.outcome });
  }
}

/** Tasks that both sets answered: their rows on both sides, and whether anything differs. */
function pairTasks(ix, left, right) {
  const sides = [new Map(), new Map()];
  for (let i = 0; i < ix.rows.task.length; i++) {
    const side = ix.rows.set[i] === left ? 0 : ix.rows.set[i] === right ? 1 : -1;
    if (side < 0) continue;
    const id = ix.tasks.id[ix.rows.task[i]];
    if (!sides[side].has(id)) sides[side].set(id, []);
    sides[side].get(id).push(i);
  }
  const pairs = [];
  for (const [id, a] of sides[0]) {
    const b = sides[1].get(id);
    if (b) pairs.push(pair(ix, id, a, b));
  }
  return pairs;
}

function pair(ix, id, a, b) {
  const of = (rows, name) => mean(rows.map((i) => ix.rows[name][i]));
  const said = (rows) => [...new Set(rows.map((i) => ix.rows.answer[i]))].sort((x, y) => x - y).join();
  const outcomes = [of(a, "outcome"), of(b, "outcome")], rewards = [of(a, "reward"), of(b, "reward")];
  const apart = (x) => x[0] === null || x[1] === null ? x[0] !== x[1] : Math.abs(x[0] - x[1]) > 1e-9;
  return {
    id, a, b, outcomes, rewards,
    differs: { outcome: apart(outcomes), reward: apart(rewards), answer: said(a) !== said(b) },
    moved: outcomes.includes(null) || !apart(outcomes) ? "" : outcomes[1] > outcomes[0] ? "up" : "down",
    samePrompt: ix.tasks.prompt[ix.rows.task[a[0]]] === ix.tasks.prompt[ix.rows.task[b[0]]],
  };
}

/** The first two sets that can be compared: of the same name in two runs, else the last two. */
function defaultSides(ix) {
  for (let a = 0; a < ix.sets.length; a++) {
    const b = ix.sets.findIndex((s) => s.run > ix.sets[a].run && s.name === ix.sets[a].name);
    if (b >= 0) return [a, b];
  }
  const other = ix.sets.findIndex((s) => s.run > 0);
  return other > 0 ? [0, other] : [Math.max(0, ix.sets.length - 2), ix.sets.length - 1];
}

/** The links of all rows; rollouts with the same four parts are counted. */
function links(ix) {
  const seen = new Map();
  return ix.rows.task.map((task, i) => {
    const step = ix.rows.step[i];
    const parts = [ix.sets[ix.rows.set[i]].key, step < 0 ? "-" : String(step), ix.tasks.id[task],
      String(ix.rows.sample[i])];
    const link = "/" + parts.map(quoted).join("/");
    const again = seen.get(link) || 0;
    seen.set(link, again + 1);
    return again ? `${link}/${again}` : link;
  });
}

/** As Python's `quote(part, safe="")` writes it. */
function quoted(part) {
  const whole = part.replace(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, "?");
  return encodeURIComponent(whole).replace(/[!'()*]/g, (c) => "%" + c.charCodeAt(0).toString(16).toUpperCase());
}

/** The chunk that holds item `i`, and its place there. */
function placeIn(starts, i) {
  let low = 0, high = starts.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (starts[middle] <= i) low = middle;
    else high = middle - 1;
  }
  return { chunk: low, at: i - starts[low] };
}

/** A number for reading: 3 places, none for whole ones, a dash for none. */
function brief(value, places = 3) {
  if (value === null || value === undefined) return "–";
  return Number.isInteger(value) ? String(value) : value.toFixed(places);
}

/** "1 task", "2 tasks". */
function many(number, word) {
  return `${number} ${word}${number === 1 ? "" : "s"}`;
}

function signed(value) {
  if (value === null || value === undefined) return "–";
  return (value > 0 ? "+" : value < 0 ? "−" : "±") + Math.abs(value).toFixed(3);
}
