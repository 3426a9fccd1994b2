// Which relations contradict each other, or seem to?
// :param user => 'demo'
// Two that both hold: the same of somebody with another object, said in different memories, or once with "not" and once
// without. Judge for yourself: one can live in one place only, but like both tea and coffee. The table view has the
// sentences.
CYPHER 5
MATCH (a:Entity)-[r:RELATES_TO]->(:Entity)
WHERE (a.partition = $user OR a.partition ENDS WITH '/user:' + $user) AND r.invalid_at IS NULL
WITH a, CASE WHEN r.predicate STARTS WITH 'not ' THEN substring(r.predicate, 4) ELSE r.predicate END AS predicate, r
ORDER BY r.at DESC
WITH a, predicate, collect(r)[..20] AS said WHERE size(said) > 1
UNWIND said AS r
UNWIND said AS s
WITH a, predicate, r, s
WHERE r.id < s.id AND (r.predicate = s.predicate) = (r.target <> s.target)
  AND none(id IN r.memory_ids WHERE id IN s.memory_ids)
RETURN a, r, endNode(r) AS one, s, endNode(s) AS other, predicate, r.fact AS says, s.fact AS `says too`
ORDER BY r.predicate = s.predicate, r.at DESC
LIMIT 25
