// What is mentioned most, and what is mentioned so often that it leads nowhere?
// :param user => 'demo'
// Look at "hub": what stands in 15 % of the memories or more (at least four) tells a search nothing.
CYPHER 5
MATCH (m:Memory)
WHERE m.partition = $user OR m.partition ENDS WITH '/user:' + $user
WITH count(m) AS all
MATCH (e:Entity)
WHERE e.partition = $user OR e.partition ENDS WITH '/user:' + $user
WITH all, e, COUNT { (e)<-[:MENTIONS]-() } AS memories, COUNT { (e)-[:RELATES_TO]-() } AS relations
WHERE memories > 1
RETURN e.name AS name, e.type AS type, memories, round(100.0 * memories / all, 1) AS percent,
       memories >= 4 AND memories >= 0.15 * all AS hub, relations
ORDER BY memories DESC, name
LIMIT 25
