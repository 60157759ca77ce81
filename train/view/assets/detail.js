// The detail of one rollout.

/**
 * @param {any} app state and actions (app.js)
 * @param {number} i the rollout
 */
async function rolloutDetail(app, i) {
  const { ix, store } = app, task = ix.rows.task[i];
  const [body, asked, tokens] = await Promise.all([
    store.item("body", i), store.item("task", task), store.item("token", i)]);
  const group = groupOf(ix, i);
  const answer = body.finding ? body.finding.text ?? body.text : body.text;
  return el("div", { class: "detail" },
    headOf(app, i, body),
    body.failure ? el("p", { class: "verdict bad" }, `The infrastructure failed: ${body.failure}`) : null,
    body.finding && asked.work ? diffPart(asked.work, body.finding, answer) : goldPart(asked, body),
    group.length > 1 ? part(`Group of ${group.length}`, el("p", { class: "quiet" }, groupWords(ix, group)),
      groupChart(ix, group, i, (k) => app.open(k))) : null,
    talkPart(asked.prompt || [], body),
    tokenPart(tokens),
    partsPart(ix, i),
    factsPart(ix, i, body, asked));
}

function headOf(app, i, body) {
  const { ix } = app, r = ix.rows, link = app.links[i];
  const facts = [ix.sets[r.set[i]].key, r.step[i] < 0 ? "" : `step ${r.step[i]}`, `sample ${r.sample[i]}`,
    ix.names.family[ix.tasks.family[r.task[i]]], ix.names.track[ix.tasks.track[r.task[i]]]];
  return el("header", {},
    el("h2", { tabindex: "-1", id: "detail-title" }, ix.tasks.id[r.task[i]]),
    el("p", { class: "quiet" }, facts.filter(Boolean).join(" · ")),
    el("p", { class: "tags" }, tag(r.outcome[i], ix.names.why[r.why[i]]),
      figure("outcome", brief(r.outcome[i])), figure("reward", brief(r.reward[i])), figure("advantage", signed(r.advantage[i])),
      figure("tokens", brief(r.length[i])), figure("stop", ix.names.stop[r.stop[i]] || "–"),
      r.seconds[i] === null ? null : figure("seconds", brief(r.seconds[i]))),
    el("p", { class: "buttons" },
      el("button", { onclick: () => app.move(-1) }, "Previous"), el("button", { onclick: () => app.move(1) }, "Next"),
      el("a", { href: `#${link}` }, "Link to this rollout"), el("span", { class: "quiet" }, body.where)));
}

function figure(name, value) {
  return el("span", { class: "fact" }, el("span", { class: "quiet" }, `${name} `), value);
}

function groupWords(ix, group) {
  const by = ix.by_std[ix.sets[ix.rows.set[group[0]]].run] ? ", divided by the group's spread" : "";
  const rewards = group.map((k) => ix.rows.reward[k]);
  return `Mean reward ${brief(mean(rewards))}, mean outcome ${brief(mean(group.map((k) => ix.rows.outcome[k])))}. ` +
    `Advantage: reward minus the group's mean${by}, computed from the rewards.`;
}

/** Gold where there is no text to align: files, or why it is not known. */
function goldPart(asked, body) {
  const gold = asked.gold;
  if (!gold) return part("Against gold", el("p", { class: "quiet" }, "Gold is not known here: the tasks file is not at hand (give it with --tasks)."));
  const made = Object.entries(body.files || {}).filter(([name]) => !(gold.files || {})[name]);
  return part("Against gold", gold.why ? el("p", { class: "quiet" }, gold.why) : null,
    gold.text ? [el("h4", {}, "Gold"), pre(gold.text)] : null,
    Object.entries(gold.files || {}).map(([name, text]) => filePair(name, text, body)),
    body.text.trim() || gold.text ? [el("h4", {}, "Answer"), pre(body.answer ?? body.text)] : null,
    made.map(([name, size]) => madeFile(name, size, body)));
}

/** A file of gold and what the answer has under its name, side by side; lines that differ are marked. */
function filePair(name, gold, body) {
  const size = (body.files || {})[name], answer = (body.file_texts || {})[name];
  const said = size === undefined ? "The answer has no such file."
    : `${size} bytes, which rollouts do not keep: they keep UTF-8 text of at most 64 kB.`;
  return el("div", { class: "panes" },
    el("div", {}, el("h4", {}, `Gold: ${name}`), markedLines(gold, answer)),
    el("div", {}, el("h4", {}, `Answer: ${name}`),
      answer === undefined ? el("p", { class: "quiet" }, said) : markedLines(answer, gold)));
}

/** A text whose lines are marked where the other text has another line, or none, at their place. */
function markedLines(text, other) {
  if (other === undefined || text === other) return pre(text);
  const theirs = other.split("\n");
  const made = el("pre", { tabindex: "0" });
  text.split("\n").forEach((line, i) => made.append(i ? "\n" : "", line === theirs[i] ? line : el("span", { class: "bad" }, line || " ")));
  return made;
}

/** A file of the answer that gold has not. */
function madeFile(name, size, body) {
  const text = (body.file_texts || {})[name];
  return el("details", {}, el("summary", {}, `answer file ${name} (${size} bytes)`),
    text === undefined ? el("p", { class: "quiet" }, "Rollouts keep UTF-8 text of at most 64 kB.") : pre(text));
}

function partsPart(ix, i) {
  const rows = Object.entries(ix.parts).filter(([, values]) => values[i] !== null)
    .map(([name, values]) => el("tr", {}, el("td", {}, name), el("td", {}, brief(values[i]))));
  if (!rows.length) return null;
  return part("Reward parts", el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "part"), el("th", { scope: "col" }, "value"))), el("tbody", {}, rows)));
}

function factsPart(ix, i, body, asked) {
  const slices = Object.entries(ix.tasks.slices).map(([name, s]) => [name, s.of[ix.rows.task[i]] < 0 ? "" : s.values[s.of[ix.rows.task[i]]]]);
  const held = { ...Object.fromEntries(slices.filter(([, v]) => v !== "")), ...asked.meta, ...body.more };
  for (const name of ["errors", "notes", "files", "tools", "turns", "tool_s", "usage", "cost", "seed"]) {
    if (body[name] !== undefined) held[name] = body[name];
  }
  const rows = Object.entries(held).map(([name, value]) => el("tr", {}, el("td", {}, name),
    el("td", { class: "text" }, typeof value === "object" ? JSON.stringify(value) : String(value))));
  return part("Task and record", el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Task and record" }, el("table", {}, el("tbody", {}, rows))));
}
