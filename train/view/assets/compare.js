// Two sets side by side on the tasks that both answered.

/** The detail of a pair: a column a side. */
async function pairDetail(app, pair, chosen) {
  const { ix } = app;
  const sides = await Promise.all([pair.a, pair.b].map((rows, n) => pairSide(app, rows, rows.includes(chosen[n]) ? chosen[n] : rows[0], n)));
  const asked = await app.store.item("task", ix.rows.task[pair.a[0]]);
  return el("div", { class: "detail" },
    el("header", {}, el("h2", { tabindex: "-1", id: "detail-title" }, pair.id),
      el("p", { class: "quiet" }, pair.samePrompt ? `${pair.a.length} and ${pair.b.length} rollouts` :
        "Both sides have this task id, and its prompt differs: these are two tasks."),
      el("p", { class: "buttons" }, el("button", { onclick: () => app.move(-1) }, "Previous"),
        el("button", { onclick: () => app.move(1) }, "Next"))),
    el("details", {}, el("summary", {}, "Prompt"), (asked.prompt || []).map((m) => messageElement(m, () => undefined))),
    el("div", { class: "two" }, sides));
}

async function pairSide(app, rows, i, side) {
  const { ix, store } = app, r = ix.rows;
  const body = await store.item("body", i);
  const asked = await store.item("task", r.task[i]);
  const name = ix.sets[r.set[i]].key;
  const choose = el("select", { "aria-label": `Rollout of ${name}`, onchange: (e) => app.chooseSide(side, Number(e.target.value)) },
    rows.map((k) => el("option", { value: k, selected: k === i }, `${r.step[k] < 0 ? "" : `step ${r.step[k]}, `}sample ${r.sample[k]}: ${brief(r.outcome[k])}`)));
  const answer = body.finding ? body.finding.text ?? body.text : body.text;
  return el("section", { class: "side" }, el("h3", {}, name), el("p", {}, rows.length > 1 ? choose : null),
    el("p", { class: "tags" }, tag(r.outcome[i], ix.names.why[r.why[i]]), figure("reward", brief(r.reward[i])),
      figure("tokens", brief(r.length[i])), el("a", { href: `#${app.links[i]}` }, "open")),
    body.finding && asked.work ? diffPart(asked.work, body.finding, answer) : pre(body.text),
    body.messages ? talkPart([], body) : null);
}
