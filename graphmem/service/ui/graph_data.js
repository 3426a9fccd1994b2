// The graph as data: what the service answers, with the names of one entity as one node, and paths in it.

import { isPast } from "./days.js";
import { NEXT_MESSAGE, PREVIOUS_MESSAGE } from "./chain.js";

const MAX_NODES = 2000;

/** Returns, for each id of an entity that is linked to others, that of them which most memories mention. */
function chiefNames(links, mentions) {
  const chief = new Map();
  const chiefOf = (id) => (chief.has(id) ? chiefOf(chief.get(id)) : id);
  for (const { source, target } of links) {
    const ends = [chiefOf(source), chiefOf(target)].sort((a, b) => (mentions.get(b) ?? 0) - (mentions.get(a) ?? 0) || (a < b ? -1 : 1));
    if (ends[0] !== ends[1]) chief.set(ends[1], ends[0]);
  }
  return new Map([...chief.keys()].map((id) => [id, chiefOf(id)]));
}

/** `listed` are the entities of the scope by each of their keys: one of several names is shown under the same name everywhere. */
function nodeOf(node, listed, moment) {
  if (node.node === "memory") return { ...node, isName: false, group: "memory", isPast: isPast(node, moment) };
  const { name, type, aliases = [] } = listed.get(node.key) ?? node;
  const names = [name, node.name, ...aliases.map((one) => one.name)];
  return { id: node.id, key: node.key, label: name, names, type, isName: true, group: type.toLowerCase(), mentions: 0 };
}

/**
 * Reads answers of `GET /graph` as one graph: `nodes` by id, `links`, `near` (ids of neighbours by id), `sameAs` (pairs of keys), `total` (nodes before
 * the largest part was cut off), `entities` (those of `GET /graph/entities`, which tell the name and the type to show), and two functions that return a
 * node: `find(id)`, which knows a name's other ids as well, and `named(name)`, by any of its names.
 *
 * Names are `{id, key, label, names, type, group, mentions}`, memories the service's nodes with `isPast`: they are no longer true at `moment`. At most
 * 2,000 nodes are kept: the nearest to `centre`, then the newest memories and the names that most memories mention.
 */
export function readGraph(answers, entities, centre = [], moment = new Date()) {
  const edges = new Map(answers.flatMap((one) => one.edges).map((edge) => [JSON.stringify([edge.source, edge.target, edge.key]), edge]));
  const mentioned = new Map();
  const linked = [];
  for (const { relationship, source, target } of edges.values()) {
    if (relationship === "MENTIONS") mentioned.set(target, (mentioned.get(target) ?? 0) + 1);
    if (relationship === "SAME_AS") linked.push({ source, target });
  }
  const chiefs = chiefNames(linked, mentioned);
  const idOf = (id) => chiefs.get(id) ?? id;
  const all = new Map();
  const listed = new Map(entities.flatMap((one) => [one, ...one.aliases].map(({ key }) => [key, one])));
  for (const node of answers.flatMap((one) => one.nodes)) if (!chiefs.has(node.id)) all.set(node.id, nodeOf(node, listed, moment));
  const links = new Map();
  for (const { source: from, target: to, relationship, predicate } of edges.values()) {
    const [source, target] = [idOf(from), idOf(to)];
    if (relationship === "SAME_AS" || source === target || !all.has(source) || !all.has(target)) continue;
    links.set(JSON.stringify([source, target, relationship, predicate]), { source, target, kind: relationship, predicate });
    if (relationship === "MENTIONS") all.get(target).mentions += 1;
  }
  const nodes = cut(all, [...links.values()], centre.map(idOf));
  const kept = [...links.values()].filter((link) => nodes.has(link.source) && nodes.has(link.target));
  const sameAs = linked.map((link) => [link.source, link.target].map((id) => id.slice("entity:".length)));
  const named = (name) => [...nodes.values()].find((node) => node.isName && node.names.includes(name));
  return { nodes, links: kept, near: neighbours(nodes, kept), sameAs, total: all.size, entities, find: (id) => nodes.get(idOf(id)), named };
}

function neighbours(nodes, links) {
  const near = new Map([...nodes.keys()].map((id) => [id, new Set()]));
  for (const { source, target } of links) {
    near.get(source).add(target);
    near.get(target).add(source);
  }
  return near;
}

function cut(all, links, centre) {
  if (all.size <= MAX_NODES) return all;
  const near = neighbours(all, links);
  const reached = new Set(centre.filter((id) => all.has(id)));
  for (const id of reached) for (const other of near.get(id)) reached.add(other); // a set yields what is added meanwhile
  const { names, memories } = ranked(all);
  const [namesLeft, memoriesLeft] = [names, memories].map((some) => some.filter((one) => !reached.has(one.id)));
  const rest = namesLeft.flatMap((one, place) => [memoriesLeft[place], one]).concat(memoriesLeft.slice(namesLeft.length));
  const order = [...[...reached].map((id) => all.get(id)), ...rest.filter(Boolean)];
  return new Map(order.slice(0, MAX_NODES).map((one) => [one.id, one]));
}

/** Returns the names, those that most memories mention first, and the memories, newest first. */
export function ranked(nodes) {
  const all = [...nodes.values()];
  return {
    names: all.filter((one) => one.isName).sort((a, b) => b.mentions - a.mentions || (a.label < b.label ? -1 : 1)),
    memories: all.filter((one) => !one.isName).sort((a, b) => (a.at < b.at ? 1 : -1)),
  };
}

/** Returns the steps between two memories of a path: a name of both, else a relation between names of both, else their order. */
function stepsBetween(graph, before, after) {
  const [here, there] = [before, after].map((one) => [...graph.near.get(one.id)].map((id) => graph.nodes.get(id)).filter((node) => node.isName));
  const [shared] = here.filter((name) => there.includes(name)).sort((a, b) => a.mentions - b.mentions);
  if (shared) return { steps: [{ type: "entity", key: shared.key, name: shared.label, names: shared.names, entity_type: shared.type }], route: [shared.id] };
  const ids = [here, there].map((names) => names.map((one) => one.id));
  const isAcross = ({ source, target }) => ids[0].includes(source) && ids[1].includes(target);
  for (const link of graph.links.filter((one) => one.kind === "RELATES_TO")) {
    const relation = { type: "relation", predicate: link.predicate };
    if (isAcross(link)) return { steps: [relation], route: [link.source, link.target] };
    if (isAcross({ source: link.target, target: link.source })) return { steps: [relation], route: [link.target, link.source] };
  }
  const ends = [before.id, after.id];
  const next = graph.links.find((link) => link.kind === "NEXT" && ends.includes(link.source) && ends.includes(link.target));
  const predicate = next?.source === before.id ? NEXT_MESSAGE : PREVIOUS_MESSAGE;
  return { steps: next ? [{ type: "relation", predicate }] : [], route: [] };
}

/** Returns a path over these memories as `steps` of a chain, and as `route`, the ids of its nodes in order. */
export function pathThrough(graph, ids) {
  const [steps, route] = [[], []];
  let before = null;
  for (const memory of ids.map((id) => graph.nodes.get(id)).filter(Boolean)) {
    if (before) {
      const between = stepsBetween(graph, before, memory);
      steps.push(...between.steps);
      route.push(...between.route);
    }
    steps.push({ type: "memory", id: memory.id, memory: memory.memory, at: memory.at, actor_id: memory.actor_id, role: memory.role });
    route.push(memory.id);
    before = memory;
  }
  return { steps, route };
}
