// The trend over steps: mean reward and outcome of the rollouts shown.

const CHART = { width: 640, height: 150, left: 38, right: 8, top: 8, bottom: 22 };

/**
 * @param {{key: string, points: any[]}[]} lines
 * @param {(step: number) => void} pick called with the step that was chosen
 * @param {string} chosen the step that is filtered for, or ""
 */
function trendChart(lines, pick, chosen) {
  if (!lines.length) return null;
  const points = lines.flatMap((line) => line.points);
  const steps = points.map((p) => p.step);
  const values = points.flatMap((p) => [p.reward, p.outcome]).filter((v) => v !== null && v !== undefined);
  const low = Math.min(0, ...values), high = Math.max(1, ...values);
  const first = Math.min(...steps), last = Math.max(...steps);
  const { width, height, left, right, top, bottom } = CHART;
  const x = (step) => left + (step - first) / (last - first || 1) * (width - left - right);
  const y = (v) => height - bottom - (v - low) / (high - low) * (height - top - bottom);
  const drawn = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": "Mean reward and outcome by step; the buttons below choose a step" });
  for (const v of [low, (low + high) / 2, high]) {
    drawn.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: y(v), y2: y(v) }),
      svg("text", { x: left - 5, y: y(v) + 4, "text-anchor": "end" }, brief(v, 2)));
  }
  for (const step of ticks(first, last)) {
    drawn.append(svg("text", { x: x(step), y: height - 6, "text-anchor": "middle" }, String(step)));
  }
  lines.forEach((line, n) => {
    for (const name of ["reward", "outcome"]) {
      const there = line.points.filter((p) => p[name] !== null && p[name] !== undefined);
      const path = there.map((p) => `${x(p.step).toFixed(1)},${y(p[name]).toFixed(1)}`).join(" ");
      drawn.append(svg("polyline", { class: `curve ${name} run${n % 2}`, points: path }));
    }
  });
  if (chosen !== "") drawn.append(svg("line", { class: "chosen", x1: x(+chosen), x2: x(+chosen), y1: top, y2: height - bottom }));
  for (const step of new Set(steps)) drawn.append(stepArea(step, x, lines, pick, last - first));
  return el("figure", { class: "trend" }, legend(lines), drawn);
}

function stepArea(step, x, lines, pick, span) {
  const each = span ? (CHART.width - CHART.left - CHART.right) / span : 20;
  const said = lines.map((line) => {
    const p = line.points.find((q) => q.step === step);
    return p ? `${line.key}: reward ${brief(p.reward)}, outcome ${brief(p.outcome)}, ${p.count} rollouts` : "";
  }).filter(Boolean).join("\n");
  return svg("rect", { class: "area", x: x(step) - each / 2, width: Math.max(each, 2), y: 0, height: CHART.height - CHART.bottom,
    onclick: () => pick(step) }, svg("title", {}, `step ${step}\n${said}\nclick: only this step`));
}

function legend(lines) {
  return el("figcaption", {}, "Mean by step ", lines.map((line, n) => [
    el("span", { class: `key reward run${n % 2}` }, lines.length > 1 ? `${line.key} reward` : "reward"),
    el("span", { class: `key outcome run${n % 2}` }, lines.length > 1 ? `${line.key} outcome` : "outcome")]));
}

function ticks(first, last) {
  const every = Math.max(1, Math.ceil((last - first) / 8));
  const found = [];
  for (let step = first; step <= last; step += every) found.push(step);
  return found;
}

/** The rewards and advantages of a group's rollouts as bars from a middle line. */
function groupChart(ix, rows, current, pick) {
  const most = Math.max(1e-9, ...rows.map((i) => Math.abs(ix.rows.advantage[i] || 0)));
  return el("div", { class: "group" }, rows.map((i) => {
    const a = ix.rows.advantage[i];
    const size = a === null ? 0 : Math.abs(a) / most * 50;
    const style = a === null ? "width:0" : `width:${size.toFixed(1)}%;${a < 0 ? "right:50%" : "left:50%"}`;
    return el("button", { class: i === current ? "member on" : "member", "aria-current": i === current ? "true" : undefined,
      onclick: () => pick(i) },
    el("span", { class: "no" }, `#${ix.rows.sample[i]}`), tag(ix.rows.outcome[i], ix.names.why[ix.rows.why[i]]),
    el("span", { class: "num" }, `reward ${brief(ix.rows.reward[i])}`),
    el("span", { class: "middle" }, el("i", { class: a < 0 ? "minus" : "plus", style })),
    el("span", { class: "num" }, `advantage ${a === null ? "–" : signed(a)}`));
  }));
}
