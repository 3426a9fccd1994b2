// Draws the graph in the page's own data. Words from memories are only ever text: they reach the page as text nodes
// and the canvas as fillText, never as markup.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const panel = document.getElementById("panel");
  const search = document.getElementById("search");
  const LISTED = 60;

  // --- the graph as data ---------------------------------------------------------------------------------------

  const nodes = new Map(data.nodes.map((node) => [node.id, node]));
  const linksOf = new Map(data.nodes.map((node) => [node.id, []]));
  const byEnds = new Map();
  for (const link of data.links) {
    link.from = nodes.get(link.source);
    link.to = nodes.get(link.target);
    linksOf.get(link.source).push(link);
    if (link.source !== link.target) linksOf.get(link.target).push(link);
    const ends = JSON.stringify([link.source, link.target].sort());
    byEnds.set(ends, [...(byEnds.get(ends) ?? []), link]);
  }
  for (const parallel of byEnds.values()) {
    parallel.forEach((link, place) => {
      if (link.from === link.to) link.curve = 0.5 + 0.3 * place;
      else link.curve = (place - (parallel.length - 1) / 2) * 0.25 * (link.source < link.target ? 1 : -1);
    });
  }
  for (const node of data.nodes) {
    node.entity = node.node === "entity";
    node.radius = node.entity ? 2.2 + 2.4 * Math.sqrt(node.mentions) : 2.8;
    node.found = `${node.name ?? ""}\n${node.text ?? ""}\n${node.speaker ?? ""}`.toLowerCase();
  }
  const entities = data.nodes.filter((node) => node.entity).sort((a, b) => b.mentions - a.mentions);
  const memories = data.nodes.filter((node) => !node.entity);
  const hidden = new Set();
  let chosen = null;
  let hovered = null;
  let lit = null; // the nodes that stand out; null: all alike

  const shows = (node) => node === chosen || !hidden.has(node.group);
  const draws = (link) => !hidden.has(link.kind) && shows(link.from) && shows(link.to);
  const linked = (node, kind) => linksOf.get(node.id).filter((link) => link.kind === kind);
  const other = (link, node) => (link.from === node ? link.to : link.from);
  const neighbours = (node) => linksOf.get(node.id).map((link) => other(link, node));
  // What belongs to a node: its neighbours, and whatever else its memories mention, for these lead on.
  function around(node) {
    const near = neighbours(node);
    const further = near.filter((one) => node.entity && !one.entity).flatMap((memory) => linked(memory, "MENTIONS"));
    return new Set([node, ...near, ...further.map((link) => link.to)]);
  }
  // Lines between what stands out, as far as they begin at the node in the middle or at one of its memories.
  function standsOut(link) {
    const middle = hovered ?? chosen;
    if (!middle) return lit === null;
    if (link.from === middle || link.to === middle) return true;
    return link.kind === "MENTIONS" && middle.entity && lit.has(link.from) && lit.has(link.to);
  }

  // --- the canvas ----------------------------------------------------------------------------------------------

  let colour = {};
  function readColours() {
    const style = getComputedStyle(document.documentElement);
    const names = ["paper", "ink", "soft", "mention", "relation", "same", "next", ...Object.keys(data.groups)];
    colour = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    Object.assign(colour, {
      MENTIONS: colour.mention, RELATES_TO: colour.relation, SAME_AS: colour.same, NEXT: colour.next,
    });
  }
  readColours();

  const faint = (hex, share) => hex + Math.round(255 * share).toString(16).padStart(2, "0");
  const WIDTHS = { MENTIONS: 0.8, RELATES_TO: 1.4, SAME_AS: 2, NEXT: 1 };
  const DASHES = { NEXT: [1, 3], SAME_AS: [5, 3] };
  const LENGTHS = { MENTIONS: 34, RELATES_TO: 80, SAME_AS: 26, NEXT: 60 };
  const PULLS = { MENTIONS: 0.5, RELATES_TO: 0.25, SAME_AS: 0.8, NEXT: 0.03 };

  function drawNode(node, context) {
    context.globalAlpha = lit === null || lit.has(node) ? 1 : 0.13;
    context.fillStyle = colour[node.group];
    context.beginPath();
    if (node.entity) context.arc(node.x, node.y, node.radius, 0, 2 * Math.PI);
    else context.roundRect(node.x - node.radius, node.y - node.radius, 2 * node.radius, 2 * node.radius, 1);
    context.fill();
    if (node === chosen || node === hovered) {
      context.strokeStyle = colour.ink;
      context.lineWidth = 1.5;
      context.stroke();
    }
    context.globalAlpha = 1;
  }

  function grasp(node, paint, context) {
    context.fillStyle = paint;
    context.beginPath();
    context.arc(node.x, node.y, node.radius + 2, 0, 2 * Math.PI);
    context.fill();
  }

  // Captions come last and the weightiest first. One that would cover another goes above its node, beside it, or, until
  // there is room, away.
  function drawCaptions(context, scale) {
    const taken = [];
    Object.assign(context, { textAlign: "center", textBaseline: "middle", lineJoin: "round" });
    for (const caption of captions(scale)) {
      const size = caption.size / scale;
      context.font = `${caption.weight} ${size}px system-ui, sans-serif`;
      const width = context.measureText(caption.text).width;
      const spot = spots(caption, width, size).find(([x, y]) => caption.always || free(taken, box(x, y, width, size)));
      if (!spot) continue;
      taken.push(box(...spot, width, size));
      context.lineWidth = 3.5 / scale;
      context.strokeStyle = colour.paper;
      context.strokeText(caption.text, ...spot);
      context.fillStyle = caption.ink;
      context.fillText(caption.text, ...spot);
    }
  }
  const box = (x, y, width, size) => [x - width / 2, y - size * 0.6, x + width / 2, y + size * 0.6];
  const free = (taken, [left, top, right, bottom]) =>
    !taken.some((other) => left < other[2] && other[0] < right && top < other[3] && other[1] < bottom);
  function spots({ x, y, radius }, width, size) {
    if (radius === undefined) return [[x, y]];
    const [away, aside] = [radius + 0.75 * size, radius + width / 2 + 0.3 * size];
    return [[x, y + away], [x, y - away], [x + aside, y], [x - aside, y]];
  }

  const short = (text, most) => {
    const line = text.replace(/\s+/g, " ").trim();
    const letters = Array.from(line.slice(0, 4 * most));
    return letters.length > most ? letters.slice(0, most - 1).join("") + "…" : line;
  };

  function* captions(scale) {
    const middle = hovered ?? chosen;
    const bright = (node) => lit === null || lit.has(node);
    const named = (node, always) => ({
      text: short(node.name, 32), x: node.x, y: node.y, radius: node.radius, always, ink: colour.ink,
      size: node === middle ? 15 : Math.min(14, 11 + node.mentions / 3), weight: node.mentions > 2 || always ? 600 : 400,
    });
    if (middle?.entity && shows(middle)) yield named(middle, true);
    for (const node of entities) if (node !== middle && shows(node) && bright(node)) yield named(node, false);
    for (const link of data.links) {
      const wanted = link.kind === "RELATES_TO" && draws(link) && (middle ? standsOut(link) : scale > 1.1 && lit === null);
      if (!wanted) continue;
      const [dx, dy] = [link.to.x - link.from.x, link.to.y - link.from.y];
      yield {
        text: short(link.caption, 28), size: 10.5, weight: "italic", ink: colour.soft,
        x: (link.from.x + link.to.x) / 2 + (link.curve * dy) / 2, y: (link.from.y + link.to.y) / 2 - (link.curve * dx) / 2,
      };
    }
    for (const node of memories) {
      const wanted = shows(node) && bright(node) && (lit !== null || scale > 2.2);
      if (wanted) {
        yield {
          text: short(node.text, 44), x: node.x, y: node.y, radius: node.radius, size: 10.5, weight: 400, ink: colour.soft,
        };
      }
    }
  }

  // Two forces of our own, in the library's form: a function that is told the nodes once.
  const force = (act) => {
    let all = [];
    return Object.assign((alpha) => act(all, alpha), { initialize: (given) => { all = [...given]; } });
  };
  // Draws everything gently to the middle, so that what hangs together with nothing does not drift away.
  const gravity = force((all, alpha) => {
    for (const node of all) {
      node.vx -= node.x * 0.045 * alpha;
      node.vy -= node.y * 0.045 * alpha;
    }
  });
  // Keeps nodes and their captions off each other; sorted from left to right, only near ones are compared.
  const ROOM = 11;
  const distance = force((all) => {
    all.sort((a, b) => a.x - b.x);
    all.forEach((node, place) => {
      for (let next = place + 1; next < all.length && all[next].x - node.x < 60; next += 1) {
        const [dx, dy] = [all[next].x - node.x, all[next].y - node.y];
        const lacking = node.radius + all[next].radius + ROOM - Math.hypot(dx, dy);
        if (lacking <= 0) continue;
        const push = (0.25 * lacking) / (Math.hypot(dx, dy) || 1);
        for (const [one, sign] of [[node, -1], [all[next], 1]]) {
          one.vx += sign * dx * push;
          one.vy += sign * dy * push;
        }
      }
    });
  });

  const stage = document.getElementById("graph");
  const TICKS = data.nodes.length > 600 ? 120 : 400;
  const graph = new ForceGraph(stage)
    .nodeLabel(() => "") // the library would show names as HTML
    .linkLabel(() => "")
    .nodeVal((node) => node.radius ** 2)
    .nodeRelSize(1)
    .nodeVisibility(shows)
    .nodeCanvasObject(drawNode)
    .nodePointerAreaPaint(grasp)
    .linkVisibility(draws)
    .linkCurvature((link) => link.curve)
    .linkColor((link) => faint(colour[link.kind], lit === null ? 0.75 : standsOut(link) ? 1 : 0.1))
    .linkWidth((link) => WIDTHS[link.kind])
    .linkLineDash((link) => DASHES[link.kind] ?? null)
    .linkDirectionalArrowLength((link) => (link.kind === "RELATES_TO" ? 4 : 0))
    .linkDirectionalArrowRelPos(1)
    .onRenderFramePost(drawCaptions)
    .onNodeClick((node) => choose(node))
    .onNodeHover((node) => hover(node))
    .onBackgroundClick(() => choose(null))
    // The whole layout is computed before the first picture: the same data always gives the same one, and it rests.
    .warmupTicks(TICKS)
    .cooldownTicks(0)
    .d3AlphaDecay(1 - 0.001 ** (1 / TICKS))
    .d3VelocityDecay(0.35)
    .minZoom(0.05)
    .maxZoom(12);
  graph.d3Force("charge").strength((node) => (node.entity ? -60 - 14 * node.radius : -55)).distanceMax(500);
  graph.d3Force("link").distance((link) => LENGTHS[link.kind]).strength((link) => PULLS[link.kind]);
  graph.d3Force("center", null).d3Force("gravity", gravity).d3Force("distance", distance);
  const redraw = () => graph.linkColor(graph.linkColor()); // it rests until a property is set

  // Moves so that these are in sight, between the note and the legend, at most so near, in so many milliseconds.
  function look(shown, nearest, time) {
    const [above, below] = ["note", "legend"].map((id) => document.getElementById(id).offsetHeight + 20);
    const [xs, ys] = ["x", "y"].map((axis) => shown.map((node) => node[axis]));
    const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    const [width, height] = [stage.clientWidth - 130, stage.clientHeight - above - below - 70];
    const scale = Math.min(nearest, Math.max(width, 50) / (right - left || 1), Math.max(height, 50) / (bottom - top || 1));
    const middle = (top + bottom) / 2 + (below - above) / 2 / scale;
    graph.centerAt((left + right) / 2, middle, time).zoom(scale, time);
  }
  function fit(time) {
    graph.width(stage.clientWidth).height(stage.clientHeight);
    if (data.nodes.length) look(data.nodes, 3, time);
  }

  // --- what is chosen ------------------------------------------------------------------------------------------

  function choose(node) {
    chosen = node;
    hovered = null;
    lit = node && around(node);
    if (node) search.value = "";
    tell();
    graph.nodeVisibility(shows).linkVisibility(draws);
    redraw();
  }

  function goTo(node) {
    choose(node);
    look([...lit], 1.9, 500);
  }

  function everything() {
    search.value = "";
    choose(null);
    fit(500);
  }

  function hover(node) {
    hovered = node;
    lit = node ? around(node) : chosen ? around(chosen) : found();
    stage.style.cursor = node ? "pointer" : "";
    redraw();
  }

  const matches = () => {
    const words = search.value.trim().toLowerCase();
    return words ? [...entities, ...memories].filter((node) => node.found.includes(words)) : null;
  };
  const found = () => {
    const all = matches();
    return all && new Set(all);
  };

  search.addEventListener("input", () => {
    chosen = null;
    lit = found();
    tell();
    redraw();
    fit(500);
  });
  search.addEventListener("keydown", (event) => {
    const first = event.key === "Enter" && matches()?.[0];
    if (first) goTo(first);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") everything();
  });

  // --- the panel -----------------------------------------------------------------------------------------------

  // An element with a class and children; strings among these become text nodes.
  function make(tag, name, ...children) {
    const element = document.createElement(tag);
    if (name) element.className = name;
    element.append(...children);
    return element;
  }
  function pressed(name, action, ...children) {
    const button = make("button", name, ...children);
    button.type = "button";
    button.addEventListener("click", action);
    return button;
  }
  function swatch(group, kind) {
    const mark = make("span", `swatch ${kind}`);
    mark.style[kind.startsWith("line") ? "borderColor" : "background"] = `var(--${group})`;
    return mark;
  }
  const plural = (count, one, many) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
  const when = (node) => {
    const at = new Date(node.at); // shown by the clock of whoever looks
    return new Date(at - at.getTimezoneOffset() * 60000).toISOString().slice(0, 16).replace("T", " ");
  };
  const entityButton = (node) => pressed(
    "entity", () => goTo(node), swatch(node.group, ""), make("bdi", "", node.name), make("span", "count", `${node.mentions}`),
  );
  const memoryButton = (node) => pressed(
    "memory", () => goTo(node), make("div", "soft", `${when(node)}  `, make("bdi", "", node.speaker ?? "")),
    make("div", "words", short(node.text, 240)),
  );
  const chapter = (title, list) => {
    if (!list.length) return [];
    const more = list.length - LISTED;
    return [make("h3", "", title), ...list.slice(0, LISTED), ...(more > 0 ? [make("p", "soft", `and ${more} more`)] : [])];
  };
  const back = () => pressed("back", everything, "← everything");
  const byTime = (a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : 0);

  function tell() {
    const all = matches();
    const parts = chosen ? (chosen.entity ? aboutEntity(chosen) : aboutMemory(chosen)) : all ? results(all) : overview();
    panel.replaceChildren(...parts);
    panel.scrollTop = 0;
  }

  function overview() {
    return [
      make("p", "", "Circles are people, places and things, larger the more memories mention them. Small squares are " +
        "memories: what was said. Click either to see what belongs to it."),
      ...chapter("Mentioned most", entities.slice(0, 14).map(entityButton)),
      ...chapter("Said last", [...memories].sort(byTime).reverse().slice(0, 5).map(memoryButton)),
    ];
  }

  function results(all) {
    const [named, said] = [all.filter((node) => node.entity), all.filter((node) => !node.entity)];
    if (!all.length) return [make("p", "soft", "Nothing here has that in it.")];
    return [...chapter("Names", named.map(entityButton)), ...chapter("Memories", said.map(memoryButton))];
  }

  function aboutEntity(node) {
    const said = linked(node, "MENTIONS").map((link) => link.from).sort(byTime);
    const same = linked(node, "SAME_AS").map((link) => entityButton(other(link, node)));
    const related = linked(node, "RELATES_TO").map((link) => pressed(
      "", () => goTo(other(link, node)), make("bdi", "", link.from.name), " ", make("bdi", "predicate", link.caption), " → ",
      make("bdi", "", link.to.name),
    ));
    return [
      back(), make("h2", "", node.name),
      make("p", "soft", swatch(node.group, ""), ` ${node.group}, in ${plural(node.mentions, "memory", "memories")}`),
      ...chapter("Also called", same), ...chapter("Relations", related), ...chapter("Mentioned in", said.map(memoryButton)),
    ];
  }

  function aboutMemory(node) {
    const named = linked(node, "MENTIONS").map((link) => entityButton(link.to));
    const [before, after] = ["to", "from"].map((end) => linked(node, "NEXT").filter((link) => link[end] === node)
      .map((link) => memoryButton(other(link, node))));
    return [
      back(), make("p", "soft", `${when(node)} UTC, ${node.group}`), make("h2", "", node.speaker ?? ""),
      make("p", "words", node.text),
      ...chapter("Mentions", named), ...chapter("Before it", before), ...chapter("After it", after),
    ];
  }

  // --- the legend ----------------------------------------------------------------------------------------------

  const LINES = {
    RELATES_TO: ["relation", "relation"], MENTIONS: ["mention", "mention"], NEXT: ["next", "said next"], SAME_AS: ["same", "same"],
  };
  function toggle(group, mark, name, count) {
    const box = document.createElement("input");
    box.type = "checkbox";
    box.checked = true;
    box.name = group;
    box.addEventListener("change", () => {
      if (box.checked) hidden.delete(group);
      else hidden.add(group);
      graph.nodeVisibility(shows).linkVisibility(draws);
    });
    return make("label", "", box, mark, name, make("span", "count", `${count}`));
  }
  function legend() {
    const kinds = Object.entries(data.groups);
    const typed = kinds.filter(([, { entity }]) => entity);
    const said = kinds.filter(([, { entity }]) => !entity);
    const lines = Object.entries(LINES).filter(([kind]) => data.links.some((link) => link.kind === kind));
    const sets = [
      typed.map(([group, { count }]) => toggle(group, swatch(group, ""), group, count)),
      said.map(([group, { count }]) => toggle(group, swatch(group, "memory"), group, count)),
      lines.map(([kind, [variable, name]]) => toggle(
        kind, swatch(variable, `line ${kind}`), name, data.links.filter((link) => link.kind === kind).length,
      )),
    ];
    document.getElementById("legend").append(...sets.filter((set) => set.length).map((set) => make("fieldset", "", ...set)));
  }

  // --- all together --------------------------------------------------------------------------------------------

  document.querySelector("h1").textContent = data.title;
  document.getElementById("counts").textContent =
    `${plural(memories.length, "memory", "memories")}, ${plural(entities.length, "entity", "entities")}, ` +
    plural(data.links.filter((link) => link.kind === "RELATES_TO").length, "relation", "relations");
  if (data.note) {
    const note = document.getElementById("note");
    note.textContent = data.note;
    note.hidden = false;
  }
  legend();
  tell();
  let begun = false;
  graph.onEngineStop(() => {
    if (!begun) fit(0);
    begun = true;
  });
  graph.width(stage.clientWidth).height(stage.clientHeight).graphData({ nodes: data.nodes, links: data.links });
  window.addEventListener("resize", () => fit(0));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    readColours();
    redraw();
  });
})();
