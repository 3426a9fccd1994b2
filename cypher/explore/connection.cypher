// How are two people (or things) connected, and which memories say so?
// :param user => 'demo'
// :param name => 'Paulo Reyes'
// :param other => 'Hannah Osei'
// Parts of the names will do. Read the picture from one to the other: name, memory, name, memory.
CYPHER 5
MATCH (a:Entity)
WHERE (a.partition = $user OR a.partition ENDS WITH '/user:' + $user)
  AND ' ' + toLower(a.name) CONTAINS ' ' + toLower($name)
WITH a
ORDER BY toLower(a.name) = toLower($name) DESC, COUNT { (a)<-[:MENTIONS]-() } DESC LIMIT 1
MATCH (b:Entity {partition: a.partition})
WHERE b <> a AND ' ' + toLower(b.name) CONTAINS ' ' + toLower($other)
WITH a, b
ORDER BY toLower(b.name) = toLower($other) DESC, COUNT { (b)<-[:MENTIONS]-() } DESC LIMIT 1
MATCH path = allShortestPaths((a)-[:MENTIONS|RELATES_TO|SAME_AS*..8]-(b))
RETURN nodes(path) AS way, relationships(path) AS links
LIMIT 8
