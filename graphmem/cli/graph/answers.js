// What the view of the graph asks the service for, answered from the data in this file: it stands in for the module `api.js` of the page at /ui/.

const ENTITIES = "/graph/entities";

const { total, nodes, edges } = JSON.parse(document.getElementById("data").textContent);
const byId = new Map(nodes.map((node) => [node.id, node]));
const edgesOf = new Map(nodes.map(({ id }) => [id, []]));
for (const edge of edges) for (const end of new Set([edge.source, edge.target])) edgesOf.get(end).push(edge);
const newest = nodes.filter((node) => node.node === "memory").sort((a, b) => (a.at < b.at ? 1 : -1));

const isMention = (edge) => edge.relationship === "MENTIONS";
const isSame = (edge) => edge.relationship === "SAME_AS";
const mentions = (id) => edgesOf.get(id).filter(isMention).length;

/** Returns these ids and those at most so many edges away from them; `isWay` tells which edges count. */
function reach(ids, hops, isWay = () => true) {
  const found = new Set(ids);
  let last = [...found];
  for (let hop = 0; hop < hops && last.length; hop += 1) {
    const next = last.flatMap((id) => edgesOf.get(id).filter(isWay).flatMap(({ source, target }) => [source, target]));
    last = [...new Set(next)].filter((id) => !found.has(id));
    for (const id of last) found.add(id);
  }
  return found;
}

/** Returns an entity whose names have these ids, as `GET /graph/entities/{key}` does; `memories` is their number with `isCounted`. */
function entityOf(ids, isCounted) {
  const names = [...ids].sort((a, b) => mentions(b) - mentions(a) || (a < b ? -1 : 1)).map((id) => byId.get(id));
  const [{ key, name, type }, ...aliases] = names;
  const sources = new Set([...ids].flatMap((id) => edgesOf.get(id).filter(isMention).map((edge) => edge.source)));
  if (isCounted) return { key, name, type, aliases, memories: sources.size };
  const stated = [...ids].flatMap((id) => edgesOf.get(id)).filter((edge) => edge.relationship === "RELATES_TO");
  const relations = stated.map(({ source, target, predicate }) => ({ source: byId.get(source).name, relationship: predicate, target: byId.get(target).name }));
  return { key, name, type, aliases, relations, memories: newest.filter(({ id }) => sources.has(id)) };
}

function allEntities() {
  const seen = new Set();
  return nodes.filter((node) => node.node === "entity").flatMap(({ id }) => {
    if (seen.has(id)) return [];
    const ids = reach([id], Infinity, isSame);
    for (const one of ids) seen.add(one);
    return [entityOf(ids, true)];
  }).sort((a, b) => b.memories - a.memories);
}

const folded = (text) => text.normalize("NFKC").trim().toLowerCase();

/** Returns the node with an id, a key or a name; undefined if there is none. */
function find(text) {
  const isMeant = (node) => node.node === "entity" && [node.key, folded(node.name)].includes(folded(text));
  return byId.get(text) ?? byId.get(`entity:${text}`) ?? nodes.find(isMeant);
}

/** Returns the memories that `around` means, if it is no name: those with these words. */
const withWords = (text) => newest.filter((node) => folded(node.memory).includes(folded(text)));

function idsOf({ around, hops, limit }) {
  if (!around && limit >= newest.length) return byId;
  const centres = around ? [find(around) ?? withWords(around)].flat() : newest.slice(0, limit);
  const ids = centres.map(({ id }) => id);
  return around ? reach(ids, hops) : reach(ids, 1, isMention);
}

function part(query) {
  const ids = idsOf(query);
  return { nodes: nodes.filter(({ id }) => ids.has(id)), edges: edges.filter(({ source, target }) => ids.has(source) && ids.has(target)) };
}

/** As on the page: an answer that is no result. */
export class ApiError extends Error {}

export function failureOf(error) {
  if (!(error instanceof ApiError)) throw error;
  return error;
}

/** Answers the requests of the view of the graph. */
export async function send(_, path, { query }) {
  if (path === "/memories") return { total };
  if (path === "/graph") return part(query);
  if (path === ENTITIES) return allEntities();
  const found = find(decodeURIComponent(path.slice(ENTITIES.length + 1)));
  return found ? entityOf(reach([found.id], Infinity, isSame), false) : { aliases: [] }; // words are no entity
}

export const SERVICE_BACK = "graphmem-back"; // never sent

export function entityPath(key) {
  return `${ENTITIES}/${encodeURIComponent(key)}`;
}
