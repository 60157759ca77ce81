// A list in the address: `#?set=rl&slice%3Akept=KEEP&outcome=wrong`. Nothing here touches the page.

/** What an address may say beside the names of facets. */
const ADDRESS_WORDS = ["part", "partIs", "text", "mode", "left", "right", "differ"];

/**
 * The list that an address asks for, or a sentence that says why there is none.
 * @returns {{filter: Filter, mode: string, sides: number[]|null, differ: string}|string}
 */
function listOf(ix, address) {
  const words = new URLSearchParams(address);
  const asked = (name) => words.get(name) || "";
  const filter = { pick: {}, part: asked("part"), partIs: asked("partIs"), text: asked("text").toLowerCase() };
  for (const [name, value] of words) {
    if (ADDRESS_WORDS.includes(name)) continue;
    if (!knownFacet(ix, name)) return `This page has no field “${name}” to filter by.`;
    filter.pick[name] = value;
  }
  if (filter.part && !ix.parts[filter.part]) return `This page has no reward part “${filter.part}”.`;
  const sides = words.has("left") ? ["left", "right"].map((side) => ix.sets.findIndex((s) => s.key === asked(side))) : null;
  if (sides && sides.includes(-1)) return `This page has no set “${asked(sides[0] < 0 ? "left" : "right")}”.`;
  return { filter, mode: sides ? "pairs" : asked("mode") === "groups" ? "groups" : "rollouts", sides, differ: asked("differ") };
}

function knownFacet(ix, name) {
  if (["set", "step", "outcome", ...NAMED, ...TASK_NAMED].includes(name)) return true;
  return name.startsWith("slice:") && name.slice("slice:".length) in ix.tasks.slices;
}

/** The address of a list; `listOf` reads it again. */
function addressOf(ix, { filter, mode, sides, differ }) {
  const words = Object.entries(filter.pick).filter(([, value]) => value !== "");
  for (const name of ["part", "partIs", "text"]) if (filter[name]) words.push([name, filter[name]]);
  if (mode === "groups") words.push(["mode", mode]);
  if (mode === "pairs") words.push(["left", ix.sets[sides[0]].key], ["right", ix.sets[sides[1]].key], ["differ", differ]);
  return "?" + words.map(([name, value]) => `${quoted(name)}=${quoted(value)}`).join("&");
}
