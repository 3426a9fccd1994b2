// Who knows whom, and from where do we know?
// :param user => 'demo'
// Look at the memories between two people: each is the newest that names both. Arrows from person to person are
// relations that were read out of the words.
CYPHER 5
MATCH (a:Person)<-[:MENTIONS]-(m:Memory)-[:MENTIONS]->(b:Person)
WHERE (m.partition = $user OR m.partition ENDS WITH '/user:' + $user)
  AND a.id < b.id
WITH a, b, m ORDER BY m.at DESC
WITH a, b, count(m) AS together, head(collect(m)) AS newest
ORDER BY together DESC, newest.at DESC LIMIT 30
MATCH path = (a)<-[:MENTIONS]-(newest)-[:MENTIONS]->(b)
OPTIONAL MATCH (a)-[relation:RELATES_TO]-(b)
RETURN path, relation, together
ORDER BY together DESC
LIMIT 60
