// Which names mean one and the same?
// :param user => 'demo'
// Two names joined by SAME_AS are one to a search. If they are not: unalias(name, other, user_id=...) in Python.
// Both ends of an entity that rename_entity renamed have its name: their keys tell them apart.
CYPHER 5
MATCH same = (a:Entity)-[:SAME_AS]->(b:Entity)
WHERE a.partition = $user OR a.partition ENDS WITH '/user:' + $user
RETURN same, CASE a.name WHEN b.name THEN a.key ELSE a.name END AS name,
       CASE b.name WHEN a.name THEN b.key ELSE b.name END AS other,
       COUNT { (a)<-[:MENTIONS]-() } AS memories, COUNT { (b)<-[:MENTIONS]-() } AS `memories of the other`
ORDER BY name
LIMIT 50
