// By which way does a name in a question lead to a memory?
// :param user => 'demo'
// :param name => 'Paulo Reyes'
// :param memory => 'Hannah Osei'
// "name" is who or what the question names; "memory" is the id of the hit, or words of it. These are the shortest ways;
// a search also weighs them: what nearly every memory mentions leads nowhere.
CYPHER 5
MATCH (m:Memory)
WHERE (m.partition = $user OR m.partition ENDS WITH '/user:' + $user)
  AND (m.id = $memory OR toLower(m.text) CONTAINS toLower($memory))
WITH m ORDER BY m.id = $memory DESC, m.at DESC LIMIT 1
MATCH (e:Entity {partition: m.partition})
WHERE ' ' + toLower(e.name) CONTAINS ' ' + toLower($name)
WITH m, e
ORDER BY toLower(e.name) = toLower($name) DESC, COUNT { (e)<-[:MENTIONS]-() } DESC LIMIT 1
MATCH path = allShortestPaths((e)-[:MENTIONS|SAME_AS|NEXT*..7]-(m))
RETURN nodes(path) AS way, relationships(path) AS links
LIMIT 8
