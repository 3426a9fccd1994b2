// Draws the graph on a canvas with force-graph, which is loaded with this module. Words reach the canvas as text, never as markup.

import "./vendor/force-graph.min.js";
import { isolated } from "./i18n.js";

const FAINT = 0.36;
// Of so many nodes at most the whole layout is computed before the first picture, in some tenths of a second. More are drawn while they move
// to their places, a step for each picture, so that nothing waits for them: and every so many steps as near as they fit.
const AT_ONCE = 250;
const FIT_EVERY = 10;
const LABEL_PIXELS = 13;
const MAX_LABEL = 32;
const CALM = 200;
const MARGIN = { top: 56, right: 130, bottom: 96, left: 110 };
// Above a name stands its label.
const LABEL_ROOM = 44;
const LENGTHS = { MENTIONS: 46, RELATES_TO: 90, NEXT: 70 };
const PULLS = { MENTIONS: 0.5, RELATES_TO: 0.2, NEXT: 0.03 };
const INKS = ["paper", "ink", "ink-3", "edge", "accent"];
const GROUPS = ["person", "organization", "place", "event", "object", "concept", "time", "other"];

/** Names of the classes whose computed colours the canvas draws with; an element of the page has to have each of them. */
export const INK_CLASSES = [...INKS.map((ink) => `ink-${ink}`), ...GROUPS];

const isStill = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

function shorten(text) {
  const letters = Array.from(text.replace(/\s+/g, " ").trim());
  return isolated(letters.length > MAX_LABEL ? `${letters.slice(0, MAX_LABEL - 1).join("")}…` : letters.join(""));
}

const polygon = (context, x, y, points) => {
  points.forEach(([dx, dy], place) => (place ? context.lineTo(x + dx, y + dy) : context.moveTo(x + dx, y + dy)));
  context.closePath();
};
const circle = (context, x, y, r) => context.arc(x, y, r, 0, 2 * Math.PI);
// The shapes of the types, as in the icons `t-*`.
const SHAPES = {
  person: circle,
  organization: (context, x, y, r) => polygon(context, x, y, [[r, 0], [r / 2, 0.87 * r], [-r / 2, 0.87 * r], [-r, 0], [-r / 2, -0.87 * r], [r / 2, -0.87 * r]]),
  place: (context, x, y, r) => polygon(context, x, y, [[0, -r], [r, 0], [0, r], [-r, 0]]),
  event: (context, x, y, r) => polygon(context, x, y, [[0, -r], [r, 0.8 * r], [-r, 0.8 * r]]),
  object: (context, x, y, r) => context.roundRect(x - 0.85 * r, y - 0.85 * r, 1.7 * r, 1.7 * r, 0.2 * r),
  concept: circle,
  time: (context, x, y, r) => {
    context.arc(x, y + r / 3, r, Math.PI, 0);
    context.closePath();
  },
  other: (context, x, y, r) => circle(context, x, y, 0.6 * r),
};

/** Radius in pixels of the screen at this scale. */
function pixels(node, scale) {
  const full = node.isName ? Math.min(15, 6 + 2 * Math.sqrt(node.mentions)) : 8;
  return full * Math.min(1, Math.max(scale, 0.35));
}

/**
 * Draws in an element and returns what moves and changes the picture. Beside the element, one with the class `notes` may cover its top.
 *
 * `onSelect(id)` is called with the id of a node that was clicked, `onMove(node)` with the name that an arrow key reached.
 */
export function openCanvas(element, { onSelect, onMove }) {
  let shown = { graph: null, lit: null, selected: "", route: [], hidden: new Set(), numbers: new Map(), pairs: new Set() };
  let colour = {};
  let font = "";
  let [cursor, isFitDue, steps] = [null, false, 0];
  let [nodes, byId] = [[], new Map()];

  const isShown = (node) => node.id === shown.selected || !shown.hidden.has(node.group);
  const isLit = (node) => shown.lit === null || shown.lit.has(node.id);
  const stepOf = (node) => (node.isName ? 0 : shown.numbers.get(node.id) ?? 0);
  const isOnRoute = (link) => shown.pairs.has(`${link.source.id} ${link.target.id}`) || shown.pairs.has(`${link.target.id} ${link.source.id}`);

  function readColours() {
    colour = Object.fromEntries(INK_CLASSES.map((name) => [name, getComputedStyle(element.parentElement.querySelector(`.inks > .${name}`)).color]));
    font = getComputedStyle(element).fontFamily;
  }

  function drawLink(link, context, scale) {
    const onRoute = isOnRoute(link);
    const isPlain = shown.lit === null || (isLit(link.source) && isLit(link.target));
    context.globalAlpha = onRoute ? 1 : isPlain ? 0.7 : 0.7 * FAINT;
    context.strokeStyle = onRoute ? colour["ink-accent"] : colour["ink-edge"];
    context.lineWidth = (onRoute ? 3.5 : link.kind === "RELATES_TO" ? 1.5 : 1) / scale;
    context.setLineDash(link.kind === "NEXT" && !onRoute ? [1 / scale, 4 / scale] : []);
    context.lineCap = "round";
    context.beginPath();
    context.moveTo(link.source.x, link.source.y);
    context.lineTo(link.target.x, link.target.y);
    context.stroke();
    context.setLineDash([]);
    context.globalAlpha = 1;
  }

  /** Returns the places for a label of a node, those first that are farthest from the path's line through it. */
  function clearest(node, places) {
    const at = shown.route.indexOf(node.id);
    const beside = at < 0 ? [] : [shown.route[at - 1], shown.route[at + 1]].map((id) => byId.get(id)).filter(Boolean);
    const nearness = ([x, y]) => Math.max(-1, ...beside.map((other) => {
      const [dx, dy, lx, ly] = [other.x - node.x, other.y - node.y, x - node.x, y - node.y];
      return (dx * lx + dy * ly) / (Math.hypot(dx, dy) * Math.hypot(lx, ly) || 1);
    }));
    return beside.length ? [...places].sort((a, b) => nearness(a) - nearness(b)) : places;
  }

  function drawSlip(node, context, scale) {
    const step = stepOf(node);
    const isLast = step > 0 && step === shown.numbers.size;
    const half = (step ? 11 : pixels(node, scale)) / scale;
    context.beginPath();
    context.roundRect(node.x - half, node.y - 0.68 * half, 2 * half, 1.36 * half, 2.5 / scale);
    context.fillStyle = isLast ? colour["ink-accent"] : colour["ink-paper"];
    context.fill();
    context.strokeStyle = colour[step || node.id === shown.selected ? "ink-accent" : "ink-ink-3"];
    context.lineWidth = (step ? 3 : node.id === shown.selected ? 2 : 1.3) / scale;
    context.setLineDash(node.isPast ? [3 / scale, 3 / scale] : []); // no longer true
    context.stroke();
    context.setLineDash([]);
  }

  function drawName(node, context, scale) {
    const r = pixels(node, scale) / scale;
    context.beginPath();
    SHAPES[node.group](context, node.x, node.y, node.group === "concept" ? r - 1.5 / scale : r);
    const alpha = context.globalAlpha;
    Object.assign(context, { globalAlpha: 1, fillStyle: colour["ink-paper"] });
    context.fill(); // no line is seen through a faint name
    context.globalAlpha = alpha;
    if (node.group !== "concept") {
      context.fillStyle = colour[node.group];
      context.fill();
    }
    context.strokeStyle = node.group === "concept" ? colour.concept : colour["ink-paper"];
    context.lineWidth = (node.group === "concept" ? 3 : 1.5) / scale;
    context.stroke();
  }

  function drawNode(node, context, scale) {
    context.globalAlpha = isLit(node) ? 1 : FAINT;
    if (node.isName) drawName(node, context, scale);
    else drawSlip(node, context, scale);
    context.globalAlpha = 1;
    if (node.id === shown.selected || node === cursor) {
      context.beginPath();
      context.arc(node.x, node.y, (pixels(node, scale) + 6) / scale, 0, 2 * Math.PI);
      context.strokeStyle = colour[node.id === shown.selected ? "ink-accent" : "ink-ink"];
      context.lineWidth = 2 / scale;
      context.stroke();
    }
  }

  function drawGrasp(node, paint, context, scale) {
    context.fillStyle = paint;
    context.beginPath();
    context.arc(node.x, node.y, (pixels(node, scale) + 4) / scale, 0, 2 * Math.PI);
    context.fill();
  }

  // Labels come last, the weightiest first; one that would cover another goes elsewhere beside its name or, until there is room, away.
  function drawLabels(context, scale) {
    if (element.ariaBusy) return; // while all moves, none could be read
    const taken = [];
    const [start, end] = [picture.screen2GraphCoords(0, 0), picture.screen2GraphCoords(element.clientWidth, element.clientHeight)];
    Object.assign(context, { textAlign: "center", textBaseline: "middle", lineJoin: "round" });
    const write = (text, spots, ink, weight, isNeeded) => {
      const size = LABEL_PIXELS / scale;
      context.font = `${weight} ${size}px ${font}`;
      const width = context.measureText(text).width;
      const boxes = spots(width, size).map(([x, y]) => [x - width / 2, y - size * 0.6, x + width / 2, y + size * 0.6]);
      const free = boxes.filter((one) => !taken.some((other) => one[0] < other[2] && other[0] < one[2] && one[1] < other[3] && other[1] < one[3]));
      const box = free.find((one) => one[0] > start.x && one[2] < end.x) ?? free[0];
      if (!box && !isNeeded) return;
      const [left, top, right, bottom] = box ?? boxes[0];
      taken.push([left, top, right, bottom]);
      context.lineWidth = 4 / scale;
      context.strokeStyle = colour["ink-paper"];
      context.strokeText(text, (left + right) / 2, (top + bottom) / 2);
      context.fillStyle = ink;
      context.fillText(text, (left + right) / 2, (top + bottom) / 2);
    };
    for (const node of nodes.filter((one) => stepOf(one) && isShown(one))) {
      const spots = (_, size) => [[0, 1], [0, -1], [1, 0], [-1, 0]].map(([x, y]) => [node.x + x * (11 / scale + size), node.y + y * (8 / scale + size)]);
      write(String(stepOf(node)), (...size) => clearest(node, spots(...size)), colour["ink-accent"], 500, true);
    }
    const isFirst = (node) => node.id === shown.selected || node === cursor || shown.route.includes(node.id);
    const weight = (node) => (isFirst(node) ? 1e6 : 0) + (isLit(node) ? 1e3 : 0) + node.mentions;
    const named = nodes.filter((node) => node.isName && isShown(node)).sort((a, b) => weight(b) - weight(a));
    for (const node of named) {
      const r = (pixels(node, scale) + (node.id === shown.selected || node === cursor ? 6 : 0)) / scale;
      const spots = (width, size) => {
        const [away, aside] = [r + 0.9 * size, r + width / 2 + 0.5 * size];
        return clearest(node, [[node.x, node.y - away], [node.x, node.y + away], [node.x + aside, node.y], [node.x - aside, node.y]]);
      };
      write(shorten(node.label), spots, colour[isLit(node) ? "ink-ink" : "ink-ink-3"], isLit(node) ? 500 : 400, isFirst(node));
    }
  }

  const picture = new globalThis.ForceGraph(element)
    .nodeLabel(() => "") // the library would show names as HTML
    .linkLabel(() => "")
    .nodeVisibility(isShown)
    .nodeCanvasObject(drawNode)
    .nodePointerAreaPaint(drawGrasp)
    .linkVisibility((link) => isShown(link.source) && isShown(link.target))
    .linkCanvasObject(drawLink)
    .onRenderFramePost(drawLabels)
    .onNodeClick((node) => onSelect(node.id))
    .onNodeHover((node) => element.classList.toggle("points", Boolean(node)))
    .enableNodeDrag(false)
    .cooldownTime(Infinity) // the same data always gives the same picture, also on a slow machine
    .d3VelocityDecay(0.35)
    .minZoom(0.05)
    .maxZoom(8)
    .onEngineTick(() => {
      steps += 1;
      if (isFitDue && steps % FIT_EVERY === 0) frame(0);
    })
    .onEngineStop(() => {
      element.ariaBusy = null;
      for (const node of nodes) Object.assign(node, { fx: undefined, fy: undefined });
      if (isFitDue) fit(0);
      isFitDue = false;
    });
  picture.d3Force("charge").strength((node) => (node.isName ? -120 : -70)).distanceMax(500);
  picture.d3Force("link").distance((link) => LENGTHS[link.kind]).strength((link) => (isOnRoute(link) ? PULLS.MENTIONS : PULLS[link.kind]));
  picture.d3Force("center", null).d3Force("gravity", (alpha) => {
    for (const node of nodes) {
      node.vx -= node.x * 0.05 * alpha;
      node.vy -= node.y * 0.05 * alpha;
    }
  });

  const redraw = () => picture.nodeVisibility(isShown); // it rests until a property is set

  function look(some, time) {
    const [xs, ys] = ["x", "y"].map((axis) => some.map((node) => node[axis]));
    const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    const [width, height] = [element.clientWidth, element.clientHeight];
    const aside = Math.min(1, width / 800);
    const notes = element.parentElement.querySelector(".notes");
    const above = notes.childElementCount ? notes.offsetTop + notes.offsetHeight + LABEL_ROOM : MARGIN.top;
    const room = [width - aside * (MARGIN.left + MARGIN.right), height - above - MARGIN.bottom];
    const scale = Math.min(2.2, Math.max(room[0], 50) / (right - left || 1), Math.max(room[1], 50) / (bottom - top || 1));
    const middle = (top + bottom) / 2 + (MARGIN.bottom - above) / 2 / scale;
    picture.centerAt((left + right) / 2, middle, time).zoom(scale, time);
  }

  /** Moves so that all is in sight; of much, or on a narrow screen, what is lit. */
  function fit(time = isStill() ? 0 : CALM) {
    picture.width(element.clientWidth).height(element.clientHeight);
    frame(time);
  }

  function frame(time) {
    const visible = nodes.filter(isShown);
    const lit = visible.filter(isLit);
    const isMuch = visible.length > 60 || element.clientWidth < 500;
    if (visible.length) look(isMuch && lit.length > 1 ? lit : visible, time);
  }

  function load(graph) {
    const former = new Map(nodes.map((node) => [node.id, node]));
    nodes = [...graph.nodes.values()].map((node) => {
      const place = former.get(node.id);
      return place ? { ...node, x: place.x, y: place.y } : { ...node };
    });
    byId = new Map(nodes.map((node) => [node.id, node]));
    const placed = nodes.filter((node) => former.has(node.id));
    // What was seen stays where it is, if it is most of the picture.
    if (placed.length * 2 > nodes.length) for (const node of placed) Object.assign(node, { fx: node.x, fy: node.y });
    cursor = nodes.find((node) => node.id === cursor?.id) ?? null;
    const ticks = nodes.length > 600 ? 120 : 300;
    const isMuch = nodes.length > AT_ONCE;
    picture.warmupTicks(isMuch ? 0 : ticks).cooldownTicks(isMuch ? ticks : 0).d3AlphaDecay(1 - 0.001 ** (1 / ticks));
    element.ariaBusy = isMuch ? "true" : null;
    isFitDue = true;
    picture.width(element.clientWidth).height(element.clientHeight)
      .graphData({ nodes, links: graph.links.map((link) => ({ ...link })) });
  }

  /** Shows `{graph, lit, selected, route, hidden}`: `lit` are ids, or null if all are alike; `route` the ids of a path. */
  function show(next) {
    const isNew = next.graph !== shown.graph;
    const memories = next.route.filter((id) => !next.graph.nodes.get(id).isName);
    const numbers = new Map(memories.map((id, place) => [id, place + 1]));
    const pairs = new Set(next.route.slice(1).map((id, place) => `${next.route[place]} ${id}`));
    shown = { ...next, numbers, pairs };
    readColours();
    if (isNew) load(next.graph);
    else redraw();
  }

  const DIRECTIONS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

  /** Goes to the nearest name in the direction of an arrow key; aside counts twice. */
  function move(key) {
    const names = nodes.filter((node) => node.isName && isShown(node));
    const from = cursor ?? nodes.find((node) => node.id === shown.selected) ?? { ...picture.centerAt(), isMiddle: true };
    const [right, down] = DIRECTIONS[key];
    const distance = (node) => {
      const [dx, dy] = [node.x - from.x, node.y - from.y];
      const ahead = dx * right + dy * down;
      if (from.isMiddle) return Math.hypot(dx, dy);
      return ahead > 0 ? ahead + 2 * Math.abs(dx * down + dy * right) : Infinity;
    };
    const [next] = names.filter((node) => node !== from && distance(node) < Infinity).sort((a, b) => distance(a) - distance(b));
    if (!next) return;
    cursor = next;
    const at = picture.graph2ScreenCoords(next.x, next.y);
    const isInSight = at.x > 20 && at.y > 20 && at.x < element.clientWidth - 20 && at.y < element.clientHeight - 60;
    if (!isInSight) picture.centerAt(next.x, next.y, isStill() ? 0 : CALM);
    redraw();
    onMove(next);
  }

  function choose() {
    if (cursor) onSelect(cursor.id);
  }

  const zoom = (factor) => picture.zoom(picture.zoom() * factor, isStill() ? 0 : CALM);
  const resized = new ResizeObserver(() => nodes.length && fit(0));
  resized.observe(element);
  const close = () => {
    resized.disconnect();
    picture._destructor();
  };
  return { show, fit, zoom, move, choose, close };
}
