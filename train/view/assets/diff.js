// Input, gold and answer, aligned character by character. The alignment is made when the page is
// built: a segment is (bits, length, step), its bits saying which of the three texts have it.

const HAS = { input: 1, gold: 2, answer: 4 };
const FOLD = 160, SHOWN = 48;  // longer equal stretches are folded to their ends
const WIDE = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60]|\p{Extended_Pictographic}/u;

/** Segments as objects with their characters. */
function segmentsOf(work, finding, answer) {
  const texts = { input: [...work.input], gold: [...work.gold], answer: [...answer] };
  const at = { input: 0, gold: 0, answer: 0 }, found = [];
  for (let k = 0; k < finding.segments.length; k += 3) {
    const [bits, length, step] = finding.segments.slice(k, k + 3);
    const from = bits & 4 ? "answer" : bits & 2 ? "gold" : "input";
    const chars = texts[from].slice(at[from], at[from] + length);
    for (const name of Object.keys(HAS)) if (bits & HAS[name]) at[name] += length;
    found.push({ bits, step, chars });
  }
  return found;
}

/** What a segment says about the answer: "", or why it is wrong. */
function fault(bits) {
  if (bits === 5) return "left over";
  if (bits === 4) return "added";
  if (bits === 3 || bits === 2) return "missing";
  return "";
}

function visible(char) {
  if (char === "\n") return "⏎";
  if (char === "\t") return "⇥";
  if (char === "\r") return "␍";
  return char < " " ? "␦" : char;
}

function markOf(name, segment, steps) {
  const there = segment.bits & HAS[name], wrong = fault(segment.bits);
  const classes = [];
  if (!there) classes.push("hole");
  if (name === "answer" && wrong) classes.push("bad");
  if (name === "input" && there && !(segment.bits & 2)) classes.push("cut");
  if (name === "gold" && there && !(segment.bits & 1)) classes.push("made");
  const step = segment.step >= 0 ? steps[segment.step] : null;
  const title = [name === "answer" ? wrong : "", step ? `step ${segment.step + 1}: ${step.name}` : ""].filter(Boolean).join(", ");
  return { class: classes.join(" ") || null, title: title || null };
}

/** The three texts in lines of `columns` characters, one below the other. */
function alignedText(segments, steps, columns, whole) {
  const names = segments.some((s) => s.bits & 1) ? ["input", "gold", "answer"] : ["gold", "answer"];
  const out = el("div", { class: "aligned", tabindex: "0", role: "group", "aria-label": "Input, gold and answer aligned" });
  let block = newBlock(names), used = 0;
  const flush = () => {
    if (used) out.append(blockElement(block, names));
    block = newBlock(names);
    used = 0;
  };
  for (const segment of segments) {
    const same = segment.bits === 7 || segment.bits === 6 && names.length === 2;
    const folded = !whole && same && segment.chars.length > FOLD;
    const runs = folded ? [segment.chars.slice(0, SHOWN), null, segment.chars.slice(-SHOWN)] : [segment.chars];
    for (const run of runs) {
      if (run === null) {
        flush();
        out.append(el("p", { class: "fold" }, `⋯ ${segment.chars.length - 2 * SHOWN} equal characters ⋯`));
        continue;
      }
      for (let k = 0; k < run.length;) {
        const piece = fitting(run, k, columns - used);
        if (!piece.length) { flush(); continue; }
        addPiece(block, names, segment, piece, steps);
        used += widthOf(piece);
        k += piece.length;
        if (used >= columns || same && piece[piece.length - 1] === "\n") flush();
      }
    }
  }
  flush();
  return out;
}

function newBlock(names) {
  return { steps: [], rows: Object.fromEntries(names.map((n) => [n, []])), wrong: false };
}

/** Characters from `k` that fit into `room` columns; an equal line ends at its line end. */
function fitting(run, k, room) {
  const found = [];
  for (let width = 0; k < run.length; k++) {
    width += WIDE.test(run[k]) ? 2 : 1;
    if (width > room) break;
    found.push(run[k]);
    if (run[k] === "\n") break;
  }
  return found;
}

function widthOf(chars) {
  return chars.reduce((sum, c) => sum + (WIDE.test(c) ? 2 : 1), 0);
}

function addPiece(block, names, segment, piece, steps) {
  const width = widthOf(piece), wrong = fault(segment.bits);
  for (const name of names) {
    const there = segment.bits & HAS[name];
    const missing = name === "answer" && wrong === "missing";
    const text = there ? piece.map(visible).join("") : (missing ? "╌" : " ").repeat(width);
    block.rows[name].push(el("span", markOf(name, segment, steps), text));
  }
  const digit = wrong && segment.step >= 0 ? String((segment.step + 1) % 10) : wrong ? "?" : " ";
  block.steps.push(digit.repeat(width));
  block.wrong ||= Boolean(wrong);
}

function blockElement(block, names) {
  const rows = names.map((name) => el("div", { class: "row" }, el("b", {}, name), el("span", { class: "chars" }, block.rows[name])));
  if (block.wrong) rows.push(el("div", { class: "row steps" }, el("b", {}, "step"), el("span", { class: "chars" }, block.steps.join(""))));
  return el("div", { class: block.wrong ? "block wrong" : "block" }, rows);
}

/** The three texts as they are, with what differs marked. */
function plainTexts(segments, steps, work, answer) {
  const names = work.input ? ["input", "gold", "answer"] : ["gold", "answer"];
  const labels = { input: "Input", gold: `Gold ${work.label}`, answer: `Answer ${answer.label}` };
  return el("div", { class: "panes" }, names.map((name) => el("div", {}, el("h4", {}, labels[name]),
    el("pre", { tabindex: "0" }, segments.length ? segments.map((s) => {
      if (!(s.bits & HAS[name])) return name === "answer" && fault(s.bits) ? el("span", { class: "bad gap", title: markOf(name, s, steps).title }, "▿") : "";
      return el("span", markOf(name, s, steps), s.chars.join(""));
    }) : name === "answer" ? answer.text : work[name]))));
}

/** The part of the detail that compares the answer with gold. */
function diffPart(work, finding, answer) {
  const segments = segmentsOf(work, finding, answer);
  const box = el("div", {});
  let mode = segments.length ? "aligned" : "texts", whole = false;
  const draw = () => {
    const columns = Math.max(16, Math.floor(((box.clientWidth || 640) - 84) / characterWidth(box)));
    put(box, mode === "aligned" ? alignedText(segments, work.steps, columns, whole)
      : plainTexts(segments, work.steps, work, { label: finding.label, text: answer }));
  };
  const choose = (value) => () => { mode = value; draw(); };
  const buttons = segments.length ? el("p", { class: "buttons" },
    el("button", { onclick: choose("aligned") }, "Aligned"), el("button", { onclick: choose("texts") }, "As texts"),
    el("button", { onclick: () => { whole = !whole; mode = "aligned"; draw(); } }, "Fold or unfold equal text")) : null;
  requestAnimationFrame(draw);
  const status = work.label ? el("p", {}, `Gold says ${work.label}, the answer ${finding.label || "nothing that can be read"}.`) : null;
  return part("Against gold", verdictOf(work, finding), status, stepTable(work, finding), buttons, box);
}

/** Pixels of a character of the alignment. */
function characterWidth(box) {
  const probe = el("span", {}, "0".repeat(50));
  const frame = el("div", { class: "aligned" }, probe);
  box.append(frame);
  const width = probe.getBoundingClientRect().width / 50;
  frame.remove();
  return width || 7.4;
}

function verdictOf(work, finding) {
  const first = finding.wrong.length ? work.steps[finding.wrong[0]] : null;
  const head = first ? el("p", { class: "verdict bad" }, `Went wrong at step ${finding.wrong[0] + 1}: ${first.name}`) : null;
  const spaces = finding.spaces ? " The texts differ in spaces that do not count." : "";
  return [head, finding.said ? el("p", { class: "said" }, finding.said + spaces) : null];
}

function stepTable(work, finding) {
  if (!work.steps.length) {
    return work.unknown ? el("p", { class: "quiet" }, `The steps are not known here: ${work.unknown}.`) : null;
  }
  const judged = finding.segments.length > 0;
  const rows = work.steps.map((step, n) => {
    const wrong = finding.wrong.includes(n);
    const said = wrong ? "went wrong" : !step.changes ? "nothing to do" : judged ? "in order" : "not known";
    return el("tr", { class: wrong ? "bad" : null }, el("td", {}, String(n + 1)), el("td", {}, el("code", {}, step.name)),
      el("td", { class: "said" }, said),
      el("td", { class: "text" }, step.detail, step.after === undefined ? null : el("details", {}, el("summary", {}, "text after it"), pre(step.after))));
  });
  const heads = ["step", "operator", "answer", "what gold's run did"].map((h) => el("th", { scope: "col" }, h));
  return el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Steps of the recipe" }, el("table", { class: "steps" }, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, rows)));
}
