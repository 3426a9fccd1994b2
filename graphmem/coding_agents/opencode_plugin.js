// Written by `graphmem install opencode`; `graphmem uninstall opencode` removes it. For opencode 1 and 2.
import { execFile } from "node:child_process"

const COMMAND = __COMMAND__

// Calls a hook of graphmem with JSON; gives its JSON, or undefined. Never fails.
function call(action, input) {
  return new Promise((resolve) => {
    try {
      const [program, ...rest] = COMMAND
      const child = execFile(program, [...rest, action], { timeout: 8000 }, (error, output) => {
        try {
          resolve(output ? JSON.parse(output) : undefined)
        } catch {
          resolve(undefined)
        }
      })
      child.on("error", () => resolve(undefined))
      child.stdin.on("error", () => {})
      child.stdin.end(JSON.stringify(input))
    } catch {
      resolve(undefined)
    }
  })
}

function textOf(parts) {
  return parts
    .filter((part) => part.type === "text" && !part.synthetic && !part.ignored)
    .map((part) => part.text)
    .join("\n")
}

const isoTime = (milliseconds) => (milliseconds ? new Date(milliseconds).toISOString() : undefined)

// opencode 1: returns hooks.
async function server({ client, directory }) {
  async function store(sessionID) {
    try {
      const session = (await client.session.get({ path: { id: sessionID } })).data
      if (session?.parentID) return // a subagent's
      const messages = (await client.session.messages({ path: { id: sessionID } })).data ?? []
      const last = messages.findLastIndex(({ info, parts }) => info.role === "user" && textOf(parts))
      if (last < 0) return
      const answers = messages.slice(last + 1).filter(({ info, parts }) => info.role === "assistant" && textOf(parts))
      const prompt = messages[last]
      const answer = answers.at(-1)
      await call("store", {
        session_id: sessionID,
        cwd: directory,
        key: prompt.info.id,
        prompt: textOf(prompt.parts),
        prompt_at: isoTime(prompt.info.time?.created),
        answer: answer ? textOf(answer.parts) : "",
        answer_at: isoTime(answer?.info.time?.created),
      })
    } catch {
      // without memory
    }
  }

  return {
    "chat.message": async (input, output) => {
      try {
        const prompt = textOf(output.parts)
        if (!prompt) return
        const found = await call("recall", { session_id: input.sessionID, cwd: directory, prompt })
        if (!found?.context) return
        output.parts.push({
          id: `prt_graphmem${Date.now().toString(36)}${Math.random().toString(36).slice(2, 8)}`,
          sessionID: input.sessionID,
          messageID: output.message.id,
          type: "text",
          text: found.context,
          synthetic: true,
        })
      } catch {
        // without memory
      }
    },
    "experimental.session.compacting": async (input) => {
      await store(input.sessionID)
    },
    event: async ({ event }) => {
      if (event.type === "session.idle") await store(event.properties.sessionID)
    },
  }
}

// opencode 2: registers hooks. Blocks stand in the system prompt, for the requests of their turn.
async function setup(ctx) {
  const turns = new Map() // by session: { key, prompt, prompt_at, answer, answer_at, context }
  const stopped = new AbortController()

  async function folder(sessionID) {
    return (await ctx.session.get({ sessionID }))?.location?.directory ?? ctx.location?.directory
  }

  async function store(sessionID) {
    const turn = turns.get(sessionID)
    if (!turn?.prompt) return
    const { context, ...words } = turn
    await call("store", { session_id: sessionID, cwd: await folder(sessionID), ...words })
  }

  await ctx.session.hook("prompt", async (event) => {
    try {
      const prompt = event.prompt?.text
      if (typeof prompt !== "string" || !prompt) return
      const turn = { key: event.messageID, prompt, prompt_at: isoTime(Date.now()), answer: "", context: "" }
      turns.set(event.sessionID, turn)
      const cwd = await folder(event.sessionID)
      turn.context = (await call("recall", { session_id: event.sessionID, cwd, prompt }))?.context ?? ""
    } catch {
      // without memory
    }
  })
  await ctx.session.hook("context", (event) => {
    const context = turns.get(event.sessionID)?.context
    if (context && Array.isArray(event.system)) event.system.push({ type: "text", text: context })
  })
  const following = (async () => {
    try {
      for await (const event of ctx.event.subscribe({ signal: stopped.signal })) {
        const sessionID = event.data?.sessionID
        const turn = turns.get(sessionID)
        if (!turn) continue
        if (event.type === "session.text.ended" && event.data.text) {
          turn.answer = event.data.text
          turn.answer_at = isoTime(Date.now())
        } else if (/^session\.(execution\.(succeeded|failed|interrupted)|compaction\.started)$/.test(event.type)) {
          await store(sessionID).catch(() => {})
        } else if (event.type === "session.deleted") {
          turns.delete(sessionID)
        }
      }
    } catch {
      // the host has ended
    }
  })()
  return async () => {
    stopped.abort()
    await following
  }
}

export default { id: "graphmem", server, setup }
