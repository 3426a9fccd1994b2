// The whole picture: which people, places and organisations are tied together, and by which memories?
// :param user => 'demo'
// Look at names that several memories lead to. Each memory shown holds two names or more; its speaker is one of them.
CYPHER 5
MATCH (m:Memory)-[:MENTIONS]->(e:Entity)
WHERE (m.partition = $user OR m.partition ENDS WITH '/user:' + $user)
  AND NOT e:Concept AND m.valid_to IS NULL
WITH m, count(e) AS names WHERE names > 1
WITH m ORDER BY names DESC, m.at DESC LIMIT 25
MATCH path = (m)-[:MENTIONS]->(e:Entity)
WHERE NOT e:Concept
RETURN path
ORDER BY e.name, m.at
LIMIT 100
