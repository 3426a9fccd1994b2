// The calls of mem0's client for TypeScript against the service at $HOST, which has no language model.
import assert from "node:assert/strict";
import { MemoryClient } from "mem0ai";

const client = new MemoryClient({ apiKey: process.env.KEY, host: process.env.HOST });
const texts = (answer) => answer.results.map((one) => one.memory).sort();
const rejected = async (call, name, part) => {
  await assert.rejects(call, (error) => error.constructor.name === name && error.message.includes(part));
};

const added = await client.add([{ role: "user", content: "Ben moved to Porto." }], {
  userId: "ben", metadata: { topic: "home" }, infer: true,
});
const id = added.results[0].id;
await client.add([{ role: "user", content: "Ben likes tea." }], { userId: "ben", appId: "notes" });

const options = { filters: { AND: [{ user_id: "ben" }, { app_id: "notes" }] }, source: "OPENCLAW", metadata: { a: 1 } };
assert.deepEqual(texts(await client.search("Where does Ben live?", options)), ["Ben likes tea."]);
assert.deepEqual(texts(await client.search("Ben", { filters: { user_id: "ben", topic: "*" } })), ["Ben moved to Porto."]);
const page = await client.getAll({ filters: { user_id: "ben" }, page: 1, pageSize: 1 });
assert.deepEqual([page.count, page.results.length], [2, 1]);

const changed = await client.update(id, { text: "Ben moved to Faro.", metadata: { sure: true } });
assert.deepEqual(changed.metadata, { topic: "home", sure: true });
assert.deepEqual((await client.history(id)).map((event) => event.event), ["ADD", "UPDATE"]);
assert.deepEqual((await client.users()).results.map((one) => [one.type, one.name, one.totalMemories]), [["user", "ben", 2]]);
assert.deepEqual(await client.getProject({ fields: ["customInstructions"] }), { customInstructions: null });

await client.batchUpdate([{ memoryId: id, text: "Ben moved to Evora." }]);
assert.equal((await client.get(id)).memory, "Ben moved to Evora.");
await rejected(client.get("unknown"), "MemoryNotFoundError", "not_found");
await rejected(client.feedback({ memoryId: id, feedback: "POSITIVE" }), "ValidationError", "not kept");
await rejected(client.createMemoryExport({ schema: {}, filters: { user_id: "ben" } }), "ValidationError", "GET /export");
await rejected(client.getProfile({ userId: "ben" }), "ValidationError", "POST /context");
await rejected(client.getWebhooks(), "ValidationError", "setting webhooks");
await rejected(client.search("x", { filters: { OR: [{ user_id: "ben" }, { user_id: "ana" }] } }), "ValidationError", "at their top");
const slashed = new MemoryClient({ apiKey: process.env.KEY, host: `${process.env.HOST}/` });
await rejected(slashed.search("x", { filters: { user_id: "ben" } }), "MemoryNotFoundError", "two slashes");
assert.deepEqual(texts(await client.search("Ben", { filters: { AND: [{ user_id: "ben" }, { metadata: { topic: "home" } }] } })), ["Ben moved to Evora."]);
await rejected(client.search("x", { filters: { user_id: "ben", categories: "a" } }), "ValidationError", "categories");
await rejected(client.getAll({ filters: { user_id: "ben" }, startDate: "2026-01-01" }), "ValidationError", "start_date");
await rejected(client.add([{ role: "user", content: "x" }], { userId: "ben", customInstructions: "y" }), "ValidationError", "custom_instructions");

await client.batchDelete([id]);
assert.deepEqual(texts(await client.getAll({ filters: { user_id: "ben" } })), ["Ben likes tea."]);
await client.deleteUsers({ userId: "ben" });
assert.equal((await client.users()).count, 0);
