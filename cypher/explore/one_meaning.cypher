// Which names mean one and the same?
// :param user => 'demo'
// Two names joined by SAME_AS are one to a search. If they are not: unalias(name, other, user_id=...) in Python.
CYPHER 5
MATCH same = (a:Entity)-[:SAME_AS]->(b:Entity)
WHERE a.partition = $user OR a.partition ENDS WITH '/user:' + $user
RETURN same, a.name AS name, b.name AS other,
       COUNT { (a)<-[:MENTIONS]-() } AS memories, COUNT { (b)<-[:MENTIONS]-() } AS `memories of the other`
ORDER BY name
LIMIT 50
