// The bar of filters. Every change calls `app.refilter`.

const TITLES = { set: "Set", step: "Step", family: "Family", track: "Track", outcome: "Outcome", why: "Why", stop: "Stop reason", wrong: "Wrong step", label: "Gold is", said: "Answer says" };

function titleOf(name) {
  return TITLES[name] || name.replace(/^slice:/, "");
}

function labelled(id, text, control) {
  control.id = id;
  return el("div", { class: "control" }, el("label", { for: id }, text), control);
}

function select(options, value, change) {
  return el("select", { onchange: (e) => change(e.target.value) },
    options.map(([v, text]) => el("option", { value: v, selected: v === value }, text)));
}

/** All controls of the filter bar. */
function filterBar(app) {
  const { ix, filter } = app;
  const found = facets(ix, filter.pick).map(({ name, values }) => {
    const options = [["", "all"], ...values.map((v) => [v.value === "" ? NOTHING : v.value, `${v.value || "none named"} (${v.count})`])];
    const control = select(options, filter.pick[name] || "", (v) => { filter.pick[name] = v; app.refilter(); });
    return labelled(`pick-${name.replace(/\W/g, "-")}`, titleOf(name), control);
  });
  const parts = Object.keys(ix.parts);
  if (parts.length) found.push(partControls(app, parts));
  const most = 4;  // the rest is folded away
  const [first, rest] = [found.slice(0, most), found.slice(most)];
  const open = Object.entries(filter.pick).some(([, v]) => v) || filter.part;
  return [el("div", { class: "controls" }, first),
    rest.length ? el("details", { open: open ? true : null }, el("summary", {}, `More filters (${rest.length})`), el("div", { class: "controls" }, rest)) : null];
}

function partControls(app, parts) {
  const { filter } = app;
  const name = select([["", "any part"], ...parts.map((p) => [p, p])], filter.part, (v) => {
    filter.part = v;
    if (v && !filter.partIs) side.value = filter.partIs = "low";
    app.refilter();
  });
  const side = select([["", "any value"], ["low", "under 0.5"], ["high", "0.5 or more"]], filter.partIs, (v) => { filter.partIs = v; app.refilter(); });
  side.setAttribute("aria-label", "Value of the reward part");
  const control = labelled("pick-part", "Reward part", name);
  control.append(side);
  return control;
}

/** How the list is made: rollouts, groups or pairs, and its order. */
function listBar(app) {
  const { ix } = app;
  const modes = [["rollouts", "Rollouts"], ["groups", "Groups"]];
  if (ix.sets.length > 1) modes.push(["pairs", "Two sets side by side"]);
  const controls = [labelled("mode", "List", select(modes, app.mode, (v) => app.setMode(v)))];
  if (app.mode === "pairs") {
    const sets = ix.sets.map((s, n) => [String(n), s.key]);
    [0, 1].forEach((side) => controls.push(labelled(`side-${side}`, side ? "with" : "Compare",
      select(sets, String(app.sides[side]), (v) => { app.sides[side] = Number(v); app.refilter(); }))));
    controls.push(labelled("differ", "Only where", select([["", "all tasks"], ["outcome", "the outcome differs"], ["up", "the outcome is higher"], ["down", "the outcome is lower"], ["reward", "the reward differs"], ["answer", "the answer differs"]],
      app.differ, (v) => { app.differ = v; app.refilter(); })));
  } else {
    controls.push(labelled("sort", "Sort by", select(SORTS.map((s) => [s, s === "order" ? "as recorded" : s]), app.sort, (v) => { app.sort = v; app.refilter(); })));
    controls.push(labelled("down", "Order", select([["", "lowest first"], ["1", "highest first"]], app.down ? "1" : "", (v) => { app.down = Boolean(v); app.refilter(); })));
  }
  const address = el("a", { href: `#${addressOf(ix, app)}` }, "Link to this list");
  return [el("div", { class: "controls" }, controls), el("p", { class: "address" }, address)];
}

const KEYS = [["j or ↓", "next in the list"], ["k or ↑", "previous"], ["/", "search"], ["g", "groups or rollouts"], ["c", "clear all filters"], ["t", "light or dark"], ["?", "this help"], ["Esc", "close, or back to the list"]];

function helpDialog() {
  return el("dialog", { id: "help", "aria-labelledby": "help-title" }, el("h2", { id: "help-title" }, "Keys"),
    el("table", {}, el("tbody", {}, KEYS.map(([key, what]) => el("tr", {}, el("td", {}, el("kbd", {}, key)), el("td", { class: "text" }, what))))),
    el("p", {}, "Colours of the alignment: a hole in the answer lacks characters of gold, marked characters are too many. The line “step” names the recipe's step."),
    el("form", { method: "dialog" }, el("button", {}, "Close")));
}
