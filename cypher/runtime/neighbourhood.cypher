// Returns the bounded neighbourhood of seeds within a view in one row; see `graphmem.plugins.Graph`.
CYPHER 5 replan=skip
OPTIONAL MATCH (marker:GraphmemLedger {ledger: $ledger})
// start: the seed memories in the view, in the order of the parameter.
CALL () {
  UNWIND range(0, size($seeds.memories) - 1) AS place
  MATCH (m:Memory {ledger: $ledger, id: $seeds.memories[place]})
  WHERE m.partition = $view.partition AND m.kind IN $view.kinds
    AND ($view.user_id IS NULL OR m.user_id = $view.user_id)
    AND ($view.agent_id IS NULL OR m.agent_id = $view.agent_id)
    AND ($view.run_id IS NULL OR m.run_id = $view.run_id OR $view.run_id IN m.further_runs)
    AND ($view.show_retired OR m.valid_to IS NULL OR m.valid_to > $view.moment)
    AND ($view.as_of IS NULL OR m.valid_from <= $view.as_of)
    AND ($view.show_expired OR m.expires_at IS NULL OR m.expires_at > $view.moment)
    AND ($view.show_forgotten OR m.forgotten_at IS NULL OR m.forgotten_at > $view.moment)
  WITH m, place ORDER BY place
  RETURN collect(m) AS start
}
// around: memories before and after them in their sessions, nearest first. One outside the view counts as a step.
CALL (start) {
  UNWIND start AS m
  MATCH path = (m)-[:NEXT*1..6]-(x)
  WHERE length(path) <= $steps
  WITH start, x, min(length(path)) AS distance
  WHERE NOT x IN start
    AND x.partition = $view.partition AND x.kind IN $view.kinds
    AND ($view.user_id IS NULL OR x.user_id = $view.user_id)
    AND ($view.agent_id IS NULL OR x.agent_id = $view.agent_id)
    AND ($view.run_id IS NULL OR x.run_id = $view.run_id OR $view.run_id IN x.further_runs)
    AND ($view.show_retired OR x.valid_to IS NULL OR x.valid_to > $view.moment)
    AND ($view.as_of IS NULL OR x.valid_from <= $view.as_of)
    AND ($view.show_expired OR x.expires_at IS NULL OR x.expires_at > $view.moment)
    AND ($view.show_forgotten OR x.forgotten_at IS NULL OR x.forgotten_at > $view.moment)
  WITH x, distance ORDER BY distance, x.row
  RETURN collect(x) AS around
}
// naming: the memories of the best mentions of each seed entity, by a bounded read of the index.
CALL () {
  UNWIND range(0, size($seeds.entities) - 1) AS place
  CALL (place) {
    MATCH (m)-[r:MENTIONS]->()
    USING INDEX SEEK r:MENTIONS(ledger, ekey, rank)
    WHERE r.ledger = $ledger AND r.ekey = $seeds.entities[place] AND r.rank IS NOT NULL
      AND m.partition = $view.partition AND m.kind IN $view.kinds
      AND ($view.user_id IS NULL OR m.user_id = $view.user_id)
      AND ($view.agent_id IS NULL OR m.agent_id = $view.agent_id)
      AND ($view.run_id IS NULL OR m.run_id = $view.run_id OR $view.run_id IN m.further_runs)
      AND ($view.show_retired OR m.valid_to IS NULL OR m.valid_to > $view.moment)
      AND ($view.as_of IS NULL OR m.valid_from <= $view.as_of)
      AND ($view.show_expired OR m.expires_at IS NULL OR m.expires_at > $view.moment)
      AND ($view.show_forgotten OR m.forgotten_at IS NULL OR m.forgotten_at > $view.moment)
    WITH m, r ORDER BY r.ledger DESC, r.ekey DESC, r.rank DESC LIMIT $seed_mentions
    RETURN m, r.rank AS rank
  }
  WITH m, place, rank ORDER BY place, rank DESC
  RETURN collect(m) AS naming
}
// frontier: the entities that start and naming share with other memories, those with the fewest memories first.
CALL (start, naming) {
  UNWIND start + naming AS m
  WITH DISTINCT m
  MATCH (m)-[r:MENTIONS]->(e)
  WHERE r.rank IS NOT NULL
  WITH DISTINCT e WHERE NOT e.id IN $seeds.entities
  WITH e, COUNT { (e)<-[:MENTIONS]-() } AS df WHERE df > 1
  WITH e ORDER BY df, e.key LIMIT $frontier
  RETURN collect(e.id) AS frontier
}
// leads: the memories of the best mentions of each frontier entity.
CALL (frontier) {
  UNWIND range(0, size(frontier) - 1) AS place
  CALL (frontier, place) {
    MATCH (m)-[r:MENTIONS]->()
    USING INDEX SEEK r:MENTIONS(ledger, ekey, rank)
    WHERE r.ledger = $ledger AND r.ekey = frontier[place] AND r.rank IS NOT NULL
      AND m.partition = $view.partition AND m.kind IN $view.kinds
      AND ($view.user_id IS NULL OR m.user_id = $view.user_id)
      AND ($view.agent_id IS NULL OR m.agent_id = $view.agent_id)
      AND ($view.run_id IS NULL OR m.run_id = $view.run_id OR $view.run_id IN m.further_runs)
      AND ($view.show_retired OR m.valid_to IS NULL OR m.valid_to > $view.moment)
      AND ($view.as_of IS NULL OR m.valid_from <= $view.as_of)
      AND ($view.show_expired OR m.expires_at IS NULL OR m.expires_at > $view.moment)
      AND ($view.show_forgotten OR m.forgotten_at IS NULL OR m.forgotten_at > $view.moment)
    WITH m, r ORDER BY r.ledger DESC, r.ekey DESC, r.rank DESC LIMIT $frontier_mentions
    RETURN m, r.rank AS rank
  }
  WITH m, place, rank ORDER BY place, rank DESC
  RETURN collect(m) AS leads
}
// selection: all of them, each once, in that order, up to the limit.
CALL (start, around, naming, leads) {
  WITH start + around + naming + leads AS candidates
  UNWIND range(0, size(candidates) - 1) AS place
  WITH candidates[place] AS m, min(place) AS place
  WITH m ORDER BY place LIMIT $most
  RETURN collect(m) AS selection
}
// mentions: [key, df, place * 4 + kind for each mention, ...] of each shared or seed entity; place is the position in
// selection. alone: place * 4 + kind for each mention of an entity of a single memory.
CALL (selection) {
  UNWIND range(0, size(selection) - 1) AS place
  WITH selection[place] AS m, place * 4 AS slot
  MATCH (m)-[r:MENTIONS]->(e)
  WHERE r.rank IS NOT NULL
  WITH e, collect(slot + r.kind) AS holders
  WITH e, holders, COUNT { (e)<-[:MENTIONS]-() } AS df
  WITH e, holders, df, df > 1 OR e.id IN $seeds.entities AS links
  RETURN collect(CASE WHEN links THEN [e.key, df] + holders END) AS mentions,
         collect(CASE WHEN NOT links THEN holders[0] END) AS alone
}
// next: pairs of consecutive memories of a session, both in the view, at least one of them in selection.
CALL (selection) {
  UNWIND selection AS m
  MATCH (m)-[n:NEXT]-(x)
  WHERE x.partition = $view.partition AND x.kind IN $view.kinds
    AND ($view.user_id IS NULL OR x.user_id = $view.user_id)
    AND ($view.agent_id IS NULL OR x.agent_id = $view.agent_id)
    AND ($view.run_id IS NULL OR x.run_id = $view.run_id OR $view.run_id IN x.further_runs)
    AND ($view.show_retired OR x.valid_to IS NULL OR x.valid_to > $view.moment)
    AND ($view.as_of IS NULL OR x.valid_from <= $view.as_of)
    AND ($view.show_expired OR x.expires_at IS NULL OR x.expires_at > $view.moment)
    AND ($view.show_forgotten OR x.forgotten_at IS NULL OR x.forgotten_at > $view.moment)
  WITH DISTINCT n
  RETURN collect([startNode(n).id, endNode(n).id]) AS next
}
RETURN marker.schema AS schema, [m IN selection | m.id] AS memories, mentions, alone, next
