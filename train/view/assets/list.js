// A list that draws only the lines in view: 20,000 lines cost no more than 20.

const LINE = 56;  // pixels, as in view.css

class LongList {
  /**
   * @param {HTMLElement} box scrolls and takes the keyboard
   * @param {(item: any) => HTMLElement[]} draw the content of a line
   * @param {(at: number) => void} chosen called when a line is chosen
   */
  constructor(box, draw, chosen) {
    Object.assign(this, { box, draw, chosen, items: [], at: -1, first: -1, last: -1 });
    this.sheet = el("div", { class: "sheet", role: "presentation" });
    box.append(this.sheet);
    box.addEventListener("scroll", () => this.paint());
    box.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.paint()).observe(box);
  }

  /** Show other items, with number `at` chosen (-1: none). */
  show(items, at, keepPlace) {
    this.items = items;
    this.at = at;
    this.sheet.style.height = `${items.length * LINE}px`;
    if (!keepPlace) this.box.scrollTop = 0;
    this.first = -1;
    this.paint();
  }

  /** Choose a line and bring it into view. */
  choose(at) {
    this.at = at;
    const top = at * LINE, height = this.box.clientHeight;
    if (at >= 0 && (top < this.box.scrollTop || top + LINE > this.box.scrollTop + height)) {
      this.box.scrollTop = Math.max(0, top - height / 2 + LINE / 2);
    }
    this.first = -1;
    this.paint();
  }

  paint() {
    const height = this.box.clientHeight || 600;
    const first = Math.max(0, Math.floor(this.box.scrollTop / LINE) - 4);
    const last = Math.min(this.items.length, first + Math.ceil(height / LINE) + 8);
    if (first === this.first && last === this.last) return;
    Object.assign(this, { first, last });
    const lines = [];
    for (let k = first; k < last; k++) lines.push(this.line(k));
    this.sheet.replaceChildren(...lines);
    const active = this.at >= first && this.at < last ? `line-${this.at}` : null;
    if (active) this.box.setAttribute("aria-activedescendant", active);
    else this.box.removeAttribute("aria-activedescendant");
  }

  line(k) {
    return el("div", {
      id: `line-${k}`, class: k === this.at ? "line on" : "line", role: "option",
      "aria-selected": k === this.at ? "true" : "false", "aria-posinset": k + 1,
      "aria-setsize": this.items.length, style: `top:${k * LINE}px`, onclick: () => this.chosen(k),
    }, this.draw(this.items[k]));
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.box.clientHeight / LINE) - 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (!(event.key in moves) || !this.items.length) return;
    event.preventDefault();
    this.chosen(Math.max(0, Math.min(this.items.length - 1, this.at + moves[event.key])));
  }
}

/** A line of one rollout. */
function rolloutLine(ix, i) {
  const r = ix.rows, task = r.task[i], wrong = ix.names.wrong[r.wrong[i]];
  const step = r.step[i] < 0 ? "" : `step ${r.step[i]}`;
  return [
    el("i", { class: `edge ${outcomeClass(r.outcome[i])}` }),
    el("span", { class: "name" }, `${ix.tasks.id[task]} #${r.sample[i]}`),
    el("span", { class: "figure" }, brief(r.reward[i])),
    el("span", { class: "about" }, [ix.sets.length > 1 ? ix.sets[r.set[i]].key : "", step,
      ix.names.why[r.why[i]], wrong && `at ${wrong}`].filter(Boolean).join(" · ")),
    el("span", { class: "figure quiet" }, `${signed(r.advantage[i])} · ${brief(r.length[i])} tok`),
  ];
}

/** A line of one group. */
function groupLine(ix, rows) {
  const r = ix.rows, i = rows[0];
  const step = r.step[i] < 0 ? "" : `step ${r.step[i]}`;
  return [
    el("i", { class: `edge ${groupClass(ix, rows)}` }),
    el("span", { class: "name" }, ix.tasks.id[r.task[i]]),
    el("span", { class: "figure" }, brief(mean(rows.map((k) => r.reward[k])))),
    el("span", { class: "about" }, [ix.sets.length > 1 ? ix.sets[r.set[i]].key : "", step,
      many(rows.length, "rollout")].filter(Boolean).join(" · ")),
    el("span", { class: "bars" }, rows.slice(0, 16).map((k) => bar(r.reward[k], `#${r.sample[k]} reward`))),
  ];
}

function groupClass(ix, rows) {
  const kinds = new Set(rows.map((k) => outcomeClass(ix.rows.outcome[k])));
  return kinds.size === 1 ? [...kinds][0] : "partly";
}

/** A line of a task that two sets answered. */
function pairLine(ix, pair) {
  const [x, y] = pair.outcomes;
  const change = x === null || y === null ? null : y - x;
  return [
    el("i", { class: `edge ${change === null ? "none" : change > 0 ? "right" : change < 0 ? "wrong" : "same"}` }),
    el("span", { class: "name" }, pair.id),
    el("span", { class: "figure" }, `${brief(x, 2)} → ${brief(y, 2)}`),
    el("span", { class: "about" }, Object.entries(pair.differs).filter(([, yes]) => yes)
      .map(([name]) => name).join(", ") || "the same"),
    el("span", { class: "figure quiet" }, `reward ${brief(pair.rewards[0], 2)} → ${brief(pair.rewards[1], 2)}`),
  ];
}
