// State, addresses and keys.

class App {
  constructor(ix, where) {
    this.where = where;
    this.filter = { pick: {}, part: "", partIs: "", text: "" };
    Object.assign(this, { mode: "rollouts", sort: "order", down: false, differ: "outcome", sides: [0, 0], sideRows: [-1, -1], items: [], at: -1, turn: 0 });
    this.build();
    this.take(ix);
    this.sides = defaultSides(ix);
    if (ix.runs.length > 1 && ix.sets.length > 1) this.mode = "pairs";
  }

  /** The fixed elements of the page. */
  build() {
    this.parts = Object.fromEntries(["trend", "filters", "listbar", "count", "detail"].map((name) => [name, el("div", { class: name })]));
    this.parts.count.setAttribute("role", "status");
    this.parts.detail.setAttribute("aria-live", "off");
    this.search = el("input", { type: "search", id: "search", placeholder: "task, answer, message …", oninput: () => this.searched() });
    const box = el("div", { class: "list", role: "listbox", tabindex: "0", "aria-label": "Rollouts" });
    this.help = helpDialog();
    document.body.append(
      el("header", { class: "top" }, this.heading = el("h1", {}),
        el("span", { class: "buttons" }, this.live = el("span", { class: "live quiet", role: "status" }),
          el("button", { onclick: () => this.theme() }, "Light or dark"), el("button", { onclick: () => this.help.showModal() }, "Help"))),
      el("main", {}, el("div", { class: "side-list" }, this.parts.trend,
        el("div", { class: "control wide" }, el("label", { for: "search" }, "Search"), this.search),
        this.parts.filters, this.parts.listbar, this.parts.count, box),
      el("div", { class: "side-detail" }, el("button", { class: "back", onclick: () => this.back() }, "Back to the list"), this.parts.detail)),
      this.help);
    this.list = new LongList(box, (item) => this.line(item), (at) => this.choose(at));
  }

  /** Take an index: the first one, or a newer one of a run that goes on. */
  take(ix) {
    this.ix = ix;
    this.links = links(ix);
    this.byLink = new Map(this.links.map((link, i) => [link, i]));
    this.store = new Store(ix, this.where);
    this.reading = null;
    this.heading.textContent = ix.title;
    if (this.filter.text) this.readTexts();
  }

  start() {
    put(this.parts.filters, filterBar(this));
    for (const differ of ["outcome", "answer", ""]) {  // the first of which something is left
      this.differ = differ;
      if (this.mode !== "pairs" || this.pairs(this.ix.rows.task.map((_, i) => i)).length) break;
    }
    this.refilter(true);
    performance.mark("first-row");
    addEventListener("hashchange", () => this.follow());
    addEventListener("keydown", (event) => this.key(event));
    this.follow();
    if (!location.hash) this.openFirst();
    if (this.where === "server") setInterval(() => this.poll(), 2000);
  }

  line(item) {
    if (this.mode === "pairs") return pairLine(this.ix, item);
    return this.mode === "groups" ? groupLine(this.ix, item) : rolloutLine(this.ix, item);
  }

  /** Make the list again after a change of filter, order or kind. */
  refilter(keepPlace) {
    const rows = filterRows(this.ix, this.filter, this.store.texts);
    this.rows = rows;
    if (this.mode === "pairs") this.items = this.pairs(rows);
    else if (this.mode === "groups") this.items = this.sortedGroups(rows);
    else this.items = sortRows(this.ix, rows, this.sort, this.down);
    this.at = this.placeOf();
    this.list.show(this.items, this.at, keepPlace);
    put(this.parts.listbar, listBar(this));
    const kind = { pairs: "task", groups: "group", rollouts: "rollout" }[this.mode];
    const reading = this.filter.text && this.store.searched < 1 ? `, ${Math.round(this.store.searched * 100)} % of the texts read` : "";
    this.parts.count.textContent = many(this.items.length, kind) + (rows.length < this.ix.rows.task.length ? ` (${rows.length} of ${this.ix.rows.task.length} rollouts)` : "") + reading +
      (this.mode === "pairs" && !this.items.length ? ": choose “all tasks” to see those that are alike" : "");
    const filtered = rows.length < this.ix.rows.task.length;
    put(this.parts.trend, trendChart(trend(this.ix, filtered && this.filter.pick.step ? this.allSteps() : rows, filtered), (step) => this.pickStep(step), this.filter.pick.step || ""));
  }

  /** The filter without its step, for the trend. */
  allSteps() {
    return filterRows(this.ix, { ...this.filter, pick: { ...this.filter.pick, step: "" } }, this.store.texts);
  }

  pickStep(step) {
    this.filter.pick.step = this.filter.pick.step === String(step) ? "" : String(step);
    put(this.parts.filters, filterBar(this));
    this.refilter();
  }

  pairs(rows) {
    const there = new Set(rows);
    return pairTasks(this.ix, this.sides[0], this.sides[1])
      .filter((p) => (!this.differ || p.differs[this.differ] || p.moved === this.differ) && [...p.a, ...p.b].some((i) => there.has(i)));
  }

  sortedGroups(rows) {
    const groups = groupRows(this.ix, rows);
    if (this.sort === "order") return this.down ? groups.reverse() : groups;
    const of = (g) => mean(g.map((i) => this.ix.rows[this.sort][i])) ?? -Infinity;
    const sign = this.down ? -1 : 1;
    return groups.map((g) => [of(g), g]).sort((a, b) => sign * (a[0] - b[0])).map(([, g]) => g);
  }

  /** Where the open rollout or pair stands in the list, −1 if it does not. */
  placeOf() {
    if (this.current === undefined) return -1;
    if (this.mode === "pairs") return this.items.findIndex((p) => p.id === this.current);
    if (this.mode === "groups") return this.items.findIndex((g) => g.includes(this.current));
    return this.items.indexOf(this.current);
  }

  choose(at) {
    const item = this.items[at];
    if (item === undefined) return;
    if (this.mode === "pairs") this.go(`~/${quoted(item.id)}`);
    else this.go(this.links[this.mode === "groups" ? item[0] : item]);
  }

  open(i) {
    this.go(this.links[i]);
  }

  move(by) {
    const next = this.at < 0 ? 0 : this.at + by;
    if (next >= 0 && next < this.items.length) this.choose(next);
  }

  go(link) {
    if (location.hash === `#${link}`) this.follow();
    else location.hash = link;
  }

  /** Show what the address says. */
  async follow() {
    const link = location.hash.slice(1);
    if (!link) return this.back();
    if (link.startsWith("?")) return this.followList(link.slice(1));
    const pairId = link.startsWith("~/") ? decodeURIComponent(link.slice(2)) : null;
    const i = this.byLink.get(link);
    if (pairId !== null && this.mode !== "pairs" && this.ix.sets.length > 1) this.setMode("pairs");
    if (pairId === null && this.mode === "pairs") this.setMode("rollouts");
    if (pairId === null && i === undefined) return this.say(`This page has no rollout ${link}.`);
    this.current = pairId ?? i;
    this.at = this.placeOf();
    this.list.choose(this.at);
    document.body.classList.add("reading");
    await this.show(() => pairId === null ? rolloutDetail(this, i) : this.pairOf(pairId));
  }

  /** Show the list that an address asks for. */
  followList(address) {
    const list = listOf(this.ix, address);
    if (typeof list === "string") return this.say(list);
    this.filter = list.filter;
    this.mode = list.mode;
    if (list.sides) Object.assign(this, { sides: list.sides, differ: list.differ });
    this.search.value = list.filter.text;
    this.current = undefined;
    put(this.parts.filters, filterBar(this));
    if (list.filter.text) this.readTexts();
    this.refilter();
    put(this.parts.detail, this.hint());
    this.back();
  }

  /** Without an address: the first failure, where the screen has room for it beside the list. */
  openFirst() {
    put(this.parts.detail, this.hint());
    const first = this.mode === "rollouts" ? firstFailure(this.ix, this.items) : undefined;
    if (first === undefined || !matchMedia("(min-width: 801px)").matches) return;
    history.replaceState(null, "", `#${this.links[first]}`);
    this.follow();
  }

  hint() {
    return el("p", { class: "quiet" }, this.links.length
      ? "Choose a line of the list, or press j. Press ? for all keys." : "There are no rollouts yet.");
  }

  async pairOf(id) {
    const found = pairTasks(this.ix, this.sides[0], this.sides[1]).find((p) => p.id === id);
    return found ? pairDetail(this, found, this.sideRows) : el("p", {}, `Only one of the two sets answers ${id}.`);
  }

  chooseSide(side, i) {
    this.sideRows[side] = i;
    this.follow();
  }

  /** Put a detail in place, unless a newer one was asked for in the meantime. */
  async show(make) {
    const turn = ++this.turn;
    try {
      const made = await make();
      if (turn !== this.turn) return;
      put(this.parts.detail, made);
      this.parts.detail.parentElement.scrollTop = 0;
    } catch (error) {
      if (turn === this.turn) this.say(`This rollout cannot be shown: ${error.message}`);
    }
  }

  say(text) {
    document.body.classList.add("reading");
    put(this.parts.detail, el("p", { class: "verdict bad" }, text));
  }

  back() {
    document.body.classList.remove("reading");
    this.list.box.focus({ preventScroll: true });
  }

  setMode(mode) {
    this.mode = mode;
    this.refilter();
  }

  searched() {
    this.filter.text = this.search.value.trim().toLowerCase();
    this.readTexts();
    this.refilter();
  }

  /** Read the texts once; the list is made again as they come. */
  readTexts() {
    if (this.reading || !this.filter.text) return;
    const ix = this.ix;
    this.reading = this.store.readTexts(() => { if (this.ix === ix) this.refilter(true); }, () => this.ix !== ix);
    this.reading.catch((error) => this.say(`The search cannot read the texts: ${error.message}`));
  }

  clear() {
    this.filter = { pick: {}, part: "", partIs: "", text: "" };
    this.search.value = "";
    put(this.parts.filters, filterBar(this));
    this.refilter();
  }

  theme() {
    const dark = document.documentElement.dataset.theme
      ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    setTheme(dark ? "light" : "dark");
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target instanceof HTMLElement && event.target.matches("input, select, textarea");
    if (event.key === "Escape") {
      if (this.help.open) return;
      if (typing) event.target.blur();
      else if (document.body.classList.contains("reading")) this.go("");
      return;
    }
    if (typing || this.help.open) return;
    const actions = {
      j: () => this.move(1), k: () => this.move(-1), "/": () => this.focusSearch(), "?": () => this.help.showModal(),
      t: () => this.theme(), c: () => this.clear(), g: () => this.setMode(this.mode === "groups" ? "rollouts" : "groups"),
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  }

  focusSearch() {
    if (document.body.classList.contains("reading")) document.body.classList.remove("reading");
    this.search.focus();
    this.search.select();
  }

  /** Ask a server whether the run has gone on. */
  async poll() {
    try {
      const answer = await fetch(`index.json?version=${this.ix.version}`);
      if (answer.status === 200) {
        const open = typeof this.current === "number" ? this.links[this.current] : null;
        this.take(await answer.json());
        this.current = open === null ? this.current : this.byLink.get(open);
        put(this.parts.filters, filterBar(this));
        this.refilter(true);
      }
      const problem = answer.status === 500 ? await answer.text() : "";
      this.live.textContent = problem || `following: ${this.ix.rows.task.length} rollouts`;
    } catch {
      this.live.textContent = "the server does not answer";
    }
  }
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  try { localStorage.setItem("assay-view-theme", name); } catch { /* a page from a file may have none */ }
}

function savedTheme() {
  try { return localStorage.getItem("assay-view-theme"); } catch { return null; }
}

if (typeof document !== "undefined") {
  const saved = savedTheme();
  if (saved) document.documentElement.dataset.theme = saved;
  const index = JSON.parse(document.getElementById("index").textContent);
  globalThis.assayView = new App(index, document.body.dataset.chunks);
  globalThis.assayView.start();
}
