"""The hooks of coding agents, called as the clients call them: JSON in, JSON out, exit status 0 whatever happens."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.serve_process import ServeProcess, serve_process
from support.waiting import TIMEOUT

from graphmem.coding_agents.installation import Installation

ROOT = Path(__file__).parents[2]
USER = "ana"
STATEMENT = "We deploy the billing service with Nomad, never with Kubernetes."
# A busy machine answers late.
PATIENT = {"recall_seconds": TIMEOUT, "store_seconds": TIMEOUT}
QUESTION = "How do we deploy the billing service?"


class Agent:
    """A coding agent that works in a folder and calls hooks."""

    def __init__(self, home: Path, folder: Path, url: str, **more: Any) -> None:
        self.home, self.folder = home, folder
        folder.mkdir(parents=True, exist_ok=True)
        home.mkdir(parents=True, exist_ok=True)
        settings = {"url": url, "user_id": USER, **more}
        (home / "hooks.json").write_text(json.dumps(settings), "utf-8")
        self.transcript = folder.with_name(f"{folder.name}.jsonl")

    def hook(self, client: str, action: str, data: Any) -> tuple[str, str]:
        """Runs a hook in the agent's folder; returns what it prints on both streams."""
        content = data if isinstance(data, str) else json.dumps({"cwd": str(self.folder), **data})
        environment = {name: value for name, value in os.environ.items() if not name.endswith("_PROJECT_DIR")}
        done = subprocess.run(
            [sys.executable, "-P", "-m", "graphmem", "hook", client, action, "--home", str(self.home)],
            input=content,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={**environment, "PYTHONPATH": str(ROOT), "HOME": str(self.home)},
            timeout=TIMEOUT,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("\n") <= 1 and "Traceback" not in done.stderr, done.stderr
        return done.stdout, done.stderr

    def recall(self, prompt: str, client: str = "claude-code", **more: Any) -> str:
        """Submits a prompt; returns the context that the client would add, "" for none."""
        out, error = self.hook(client, "recall", {"hook_event_name": "UserPromptSubmit", "prompt": prompt, **more})
        assert error == "", error
        return "" if not out else json.loads(out)["hookSpecificOutput"]["additionalContext"]

    def turn(self, prompt: str, answer: str, uuid: str = "u1", **more: Any) -> None:
        """Writes a turn of Claude Code to the transcript, with a tool between, and ends it."""
        use = {"type": "tool_use", "id": "t", "name": "Read", "input": {"file_path": ".env"}}
        result = {"type": "tool_result", "tool_use_id": "t", "content": "The vault code is 90210."}
        records = [
            {"type": "user", "uuid": uuid, "message": {"role": "user", "content": prompt}},
            {"type": "assistant", "message": {"id": "m1", "content": [use]}},
            {"type": "user", "uuid": "r", "message": {"content": [result]}},
            {"type": "assistant", "message": {"id": "m2", "content": [{"type": "text", "text": answer}]}},
        ]
        with self.transcript.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)
        self.end("Stop", **more)

    def end(self, event: str, **more: Any) -> None:
        """Calls the hook at the end of a turn, before compaction or at the end of the session."""
        data = {"hook_event_name": event, "session_id": "s1", "transcript_path": str(self.transcript), **more}
        assert self.hook("claude-code", "store", data) == ("", "")


# --- with a running service ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    with serve_process(tmp_path_factory.mktemp("served"), "--no-auth") as service:
        yield service


@pytest.fixture
def agent(service: ServeProcess, tmp_path: Path) -> Iterator[Agent]:
    yield Agent(tmp_path / "home", tmp_path / "billing", service.address, **PATIENT)
    with service.client() as client:
        assert client.delete("/memories", params={"user_id": USER}).status_code == 200


def stored(service: ServeProcess) -> list[tuple[str, str]]:
    """Role and text of all memories, in the order in which they were said."""
    with service.client() as client:
        client.post("/flush")
        results = client.get("/memories", params={"user_id": USER}).json()["results"]
    return [(one["role"], one["memory"]) for one in reversed(results)]


@pytest.mark.thorough
def test_a_turn_is_remembered_and_recalled_in_a_later_session(service: ServeProcess, agent: Agent) -> None:
    assert agent.recall(QUESTION) == ""
    agent.turn(STATEMENT, "Understood: Nomad it is. The password: hunter2 stays in the vault.")
    assert stored(service) == [
        ("user", STATEMENT),
        ("assistant", "Understood: Nomad it is. The password: [secret] stays in the vault."),
    ]
    context = agent.recall(QUESTION, session_id="another")
    assert context.startswith("<memories>\n") and STATEMENT in context
    assert agent.recall("What is the capital of Australia?") == ""
    assert agent.recall("/deploy billing") == agent.recall("") == agent.recall("<bash-input>ls</bash-input>") == ""


@pytest.mark.thorough
def test_the_same_turn_is_stored_once_whatever_ends_it(service: ServeProcess, agent: Agent) -> None:
    agent.turn(STATEMENT, "Understood.")
    for event in ("PreCompact", "Stop", "SessionEnd"):
        agent.end(event)
    agent.end("SessionEnd", session_id="resumed")
    assert len(stored(service)) == 2
    agent.turn(STATEMENT, "As I said.", uuid="u2")
    assert [text for _, text in stored(service)].count(STATEMENT) == 2


@pytest.mark.thorough
def test_a_turn_that_went_on_after_compaction_keeps_its_prompt_once(service: ServeProcess, agent: Agent) -> None:
    agent.turn(STATEMENT, "Looking at the jobs.")
    record = {"type": "assistant", "message": {"id": "m3", "content": [{"type": "text", "text": "All jobs run."}]}}
    with agent.transcript.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    agent.end("Stop", last_assistant_message="All jobs run.")
    assert [text for _, text in stored(service)] == [STATEMENT, "Looking at the jobs.", "All jobs run."]


@pytest.mark.thorough
def test_projects_are_apart_and_what_belongs_to_the_person_is_in_all(service: ServeProcess, agent: Agent) -> None:
    other = Agent(agent.home, agent.folder.with_name("other"), service.address, **PATIENT)
    agent.turn(STATEMENT, "Understood.")
    with service.client() as client:
        told = {"user_id": USER, "messages": [{"role": "user", "content": "I want commit messages in French."}]}
        assert client.post("/memories", json=told).status_code == 200
    assert STATEMENT in agent.recall(QUESTION)
    assert other.recall(QUESTION) == ""
    for one in (agent, other):
        assert "French" in one.recall("In which language do I want commit messages?")


@pytest.mark.thorough
def test_imported_sessions_are_recalled_in_their_project_and_stored_once(tmp_path: Path) -> None:
    home = tmp_path / "served"
    folder = tmp_path / "it's a “billing” é"
    (folder / ".git").mkdir(parents=True)
    with serve_process(home, "--no-auth") as service:
        agent = Agent(tmp_path / "home", folder, service.address, **PATIENT)
        agent.turn(STATEMENT, "Understood.")
        assert len(stored(service)) == 2
        session = tmp_path / "session.jsonl"
        lines = [json.loads(line) for line in agent.transcript.read_text("utf-8").splitlines()]
        earlier = {"type": "user", "uuid": "u0", "message": {"content": "The staging cluster is called Marlin."}}
        here = {"cwd": str(folder / "src"), "sessionId": "s1", "timestamp": "2025-07-01T10:00:00Z"}
        session.write_text("".join(json.dumps({**line, **here}) + "\n" for line in [earlier, *lines]), "utf-8")
        command = [sys.executable, "-m", "graphmem", "import", "claude-code", str(session), "--user", USER, "--json"]
        settings = {"GRAPHMEM_HOME": str(home), "GRAPHMEM_EXTRACTOR__PROVIDER": "none"}
        done = subprocess.run(command, check=True, capture_output=True, env={**os.environ, **settings}, timeout=TIMEOUT)
        counts = json.loads(done.stdout)
        assert (counts["added"], counts["known"]) == (1, 2)
        assert "Marlin" in agent.recall("What is the staging cluster called?")
        elsewhere = Agent(agent.home, tmp_path / "other", service.address, **PATIENT)
        assert elsewhere.recall("What is the staging cluster called?") == ""
        agent.end("SessionEnd")
        assert len(stored(service)) == 3


@pytest.mark.thorough
def test_codex_and_cursor_tell_a_turn_in_parts(service: ServeProcess, agent: Agent) -> None:
    codex = {"session_id": "c1", "turn_id": "t1", "model": "gpt", "permission_mode": "default", "transcript_path": None}
    assert agent.recall(STATEMENT, "codex", **codex) == ""
    before = {**codex, "hook_event_name": "PreCompact", "trigger": "auto"}
    assert agent.hook("codex", "store", before) == ("", "")
    stop = {**codex, "hook_event_name": "Stop", "stop_hook_active": False, "last_assistant_message": "Noted."}
    for _ in range(2):
        assert agent.hook("codex", "store", stop) == ("", "")
    assert stored(service) == [("user", STATEMENT), ("assistant", "Noted.")]
    base = {"conversation_id": "k1", "generation_id": "g1", "workspace_roots": [str(agent.folder)], "cwd": "/"}
    out, error = agent.hook("cursor", "recall", {**base, "hook_event_name": "beforeSubmitPrompt", "prompt": QUESTION})
    assert error == ""
    assert json.loads(out)["continue"] is True
    assert STATEMENT in json.loads(out)["additional_context"]
    for text in ("Looking.", "With Nomad."):
        answered = {**base, "hook_event_name": "afterAgentResponse", "text": text}
        assert agent.hook("cursor", "answer", answered) == ("", "")
    assert agent.hook("cursor", "store", {**base, "hook_event_name": "stop", "status": "completed"}) == ("", "")
    assert stored(service)[2:] == [("user", QUESTION), ("assistant", "With Nomad.")]
    assert list((agent.home / "hooks").iterdir()) == []


@pytest.mark.thorough
def test_a_key_says_whose_memories_they_are(tmp_path: Path) -> None:
    with serve_process(tmp_path / "served", GRAPHMEM_ADMIN_API_KEY="k" * 32) as service:
        with service.client("k" * 32) as admin:
            made = admin.post("/api-keys", json={"user_id": USER, "label": "hooks"}).json()["key"]
            agent = Agent(tmp_path / "home", tmp_path / "p", service.address, api_key=made, **PATIENT)
            agent.turn(STATEMENT, "Understood.")
            admin.post("/flush").raise_for_status()  # a hook does not wait until its turn can be found
        assert STATEMENT in agent.recall(QUESTION)
        refused = Agent(tmp_path / "home2", tmp_path / "p", service.address, api_key="wrong", **PATIENT)
        out, error = refused.hook("claude-code", "recall", {"prompt": QUESTION})
        assert out == "" and "refuses the key (401)" in error and "wrong" not in error


@pytest.mark.thorough
def test_a_locked_ledger_and_a_killed_service_cost_a_line(tmp_path: Path) -> None:
    with serve_process(tmp_path / "served", "--no-auth") as service:
        agent = Agent(tmp_path / "home", tmp_path / "p", service.address)
        agent.turn(STATEMENT, "Understood.")
        (ledger,) = (tmp_path / "served").glob("ledger.sqlite")
        lock = sqlite3.connect(ledger, isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        agent.transcript.write_text("", "utf-8")
        with pytest.raises(AssertionError, match="does not answer within 5 s"):
            agent.turn("We moved to Kubernetes.", "I see.", uuid="u2")
        lock.close()
        service.process.send_signal(signal.SIGSTOP)  # hangs with open connections
        out, error = agent.hook("claude-code", "recall", {"prompt": QUESTION})
        assert out == "" and "does not answer within 0.5 s" in error
        threading.Timer(0.2, service.process.kill).start()
        out, error = agent.hook("claude-code", "store", {"transcript_path": str(agent.transcript)})
        assert out == "" and error.startswith("graphmem: ")


# --- without one that answers ----------------------------------------------------------------------------------------


@contextmanager
def answering(answer: Callable[[socket.socket], object]) -> Iterator[str]:
    """Listens on a free port, and lets a function answer each connection; yields the address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    try:
                        connection.recv(65_536)
                        answer(connection)
                    except OSError:
                        pass

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def drip(connection: socket.socket) -> None:
    for _ in range(100):
        connection.sendall(b"H")
        time.sleep(0.05)


FOUND = b'HTTP/1.1 200 OK\r\n\r\n{"context": "<memories>late</memories>"}'
ANSWERS = {
    "late": (lambda connection: (time.sleep(1), connection.sendall(FOUND)), "does not answer within 0.5 s"),
    "byte by byte": (drip, "does not answer within 0.5 s"),
    "closed": (lambda connection: None, "broke off its answer"),
    "cut off": (lambda connection: connection.sendall(FOUND[:40]), "broke off its answer"),
    "something else": (lambda connection: connection.sendall(b"SSH-2.0\r\n"), "does not speak HTTP"),
    "busy": (lambda connection: connection.sendall(b"HTTP/1.1 503 Busy\r\n\r\n{}"), "answered with status 503"),
    "a list": (lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n[]"), "broke off its answer"),
    "endless": (
        lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 2_000_000),
        "longer than any",
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_service_that_answers_badly_injects_nothing(tmp_path: Path, name: str) -> None:
    answer, expected = ANSWERS[name]
    with answering(answer) as url:
        agent = Agent(tmp_path / "home", tmp_path / "p", url)
        out, error = agent.hook("claude-code", "recall", {"prompt": QUESTION})
    assert out == ""
    assert error.startswith("graphmem: ") and expected in error


def test_an_answer_in_time_is_injected(tmp_path: Path) -> None:
    with answering(lambda connection: connection.sendall(FOUND)) as url:
        assert Agent(tmp_path / "home", tmp_path / "p", url).recall(QUESTION) == "<memories>late</memories>"


def test_without_a_service_there_is_a_line_that_says_how_to_start_it(tmp_path: Path) -> None:
    agent = Agent(tmp_path / "home", tmp_path / "p", "http://127.0.0.1:9")
    out, error = agent.hook("claude-code", "recall", {"prompt": QUESTION})
    assert (out, "start 'graphmem serve'" in error) == ("", True)
    out, error = agent.hook("codex", "recall", {"prompt": STATEMENT, "session_id": "s", "turn_id": "t"})
    assert out == "" and "cannot be reached" in error
    out, error = agent.hook("codex", "store", {"session_id": "s", "turn_id": "t", "last_assistant_message": "x"})
    assert out == "" and "cannot be reached" in error


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", "\ud83d", "[" * 100_000, '{"prompt": 3}', '{"prompt": null}', "{}"]
)
@pytest.mark.parametrize("client", ["claude-code", "codex", "cursor", "opencode"])
def test_malformed_input_injects_nothing(tmp_path: Path, client: str, content: str) -> None:
    agent = Agent(tmp_path / "home", tmp_path / "p", "http://127.0.0.1:9")
    for action in ("recall", "answer", "store"):
        out, error = agent.hook(client, action, content.encode("utf-8", "surrogatepass").decode("latin-1"))
        assert out == ""
        assert error == "" or error.startswith("graphmem: ")


@pytest.mark.parametrize("content", ["", "[]", "{", '{"url": 3}', '{"url": "ftp://x", "user_id": "ana"}'])
def test_unusable_settings_are_named(tmp_path: Path, content: str) -> None:
    agent = Agent(tmp_path / "home", tmp_path / "p", "http://127.0.0.1:9")
    (agent.home / "hooks.json").write_text(content, "utf-8")
    out, error = agent.hook("claude-code", "recall", {"prompt": QUESTION})
    assert out == "" and "hooks.json" in error and "graphmem install" in error


@pytest.mark.parametrize("words", [[], ["claude-code"], ["vim", "recall"], ["codex", "forget"], ["--help"], ["--home"]])
def test_a_hook_that_does_not_exist_blocks_no_agent(tmp_path: Path, words: list[str]) -> None:
    for module in ("graphmem", "graphmem.cli.app"):
        code = f"import sys; sys.argv = ['graphmem', 'hook', *{words!r}]; " + (
            "from graphmem.__main__ import main; main()"
            if module == "graphmem"
            else "from graphmem.cli.app import main; main()"
        )
        done = subprocess.run([sys.executable, "-c", code], input="{}", capture_output=True, text=True, cwd=ROOT)
        assert (done.returncode, done.stdout) == (0, ""), done
        assert done.stderr.startswith("graphmem: usage: graphmem hook claude-code|codex|cursor|opencode")


def test_a_missing_transcript_is_a_line(tmp_path: Path) -> None:
    agent = Agent(tmp_path / "home", tmp_path / "p", "http://127.0.0.1:9")
    for data in ({}, {"transcript_path": "/nowhere/x.jsonl"}, {"transcript_path": str(tmp_path)}):
        out, error = agent.hook("claude-code", "store", data)
        assert out == "" and "transcript" in error


# --- opencode's plugin -----------------------------------------------------------------------------------------------

PLAY_V1 = """
import plugin from "./graphmem.mjs"
const text = (text) => [{ type: "text", text }]
const prompt = { info: { id: "m1", role: "user", time: { created: 1000 } }, parts: text("STATEMENT") }
const tool = { info: { id: "m2", role: "assistant", time: {} }, parts: [{ type: "tool", state: { output: "KEY" } }] }
const answer = { info: { id: "m3", role: "assistant", time: { created: 2000 } }, parts: text("Noted.") }
const client = { session: {
  get: async ({ path }) => ({ data: { parentID: path.id === "sub" ? "s" : undefined } }),
  messages: async () => ({ data: [prompt, tool, answer] }),
} }
const hooks = await plugin.server({ client, directory: process.cwd() })
const output = { message: { id: "m1" }, parts: [{ type: "text", text: "QUESTION" }] }
await hooks["chat.message"]({ sessionID: "s" }, output)
await hooks["experimental.session.compacting"]({ sessionID: "s" }, {})
for (const id of ["s", "sub"]) await hooks.event({ event: { type: "session.idle", properties: { sessionID: id } } })
console.log(JSON.stringify(output.parts.slice(1)))
"""
PLAY_V2 = """
import plugin from "./graphmem.mjs"
const hooks = {}
const events = []
async function* subscribe({ signal }) {
  for (;;) {
    while (events.length) yield events.shift()
    if (signal.aborted) return
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}
const get = async () => ({ location: { directory: process.cwd() } })
const ctx = {
  session: { hook: async (name, hook) => (hooks[name] = hook), get },
  event: { subscribe },
}
const stop = await plugin.setup(ctx)
await hooks.prompt({ sessionID: "s", messageID: "m1", prompt: { text: "QUESTION" } })
const request = { sessionID: "s", system: [{ type: "text", text: "base" }] }
hooks.context(request)
hooks.context({ sessionID: "unknown", system: [] })
events.push({ type: "session.text.ended", data: { sessionID: "s", text: "With Nomad." } })
events.push({ type: "session.execution.succeeded", data: { sessionID: "s" } })
await stop()
console.log(JSON.stringify(request.system.slice(1)))
"""


def play(program: str, agent: Agent, home: Path) -> list[dict[str, Any]]:
    """Runs opencode's side of the plugin with Node; returns the parts that the plugin has added for the model."""
    command = [sys.executable, "-P", "-m", "graphmem"]
    installation = Installation("opencode", home, home, command=command, options={"--home": str(agent.home)})
    plugin = next(change for change in installation.installed(USER) if change.path.suffix == ".js")
    assert plugin.after is not None
    (agent.folder / "graphmem.mjs").write_bytes(plugin.after)
    words = program.replace("STATEMENT", STATEMENT).replace("QUESTION", QUESTION)
    (agent.folder / "play.mjs").write_text(words, "utf-8")
    done = subprocess.run(
        [str(shutil.which("node")), "play.mjs"],
        cwd=agent.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(agent.home)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")


@needs_node
@pytest.mark.thorough
def test_opencode_1_recalls_and_stores(service: ServeProcess, agent: Agent) -> None:
    assert play(PLAY_V1, agent, agent.home) == []
    assert stored(service) == [("user", STATEMENT), ("assistant", "Noted.")]
    (part,) = play(PLAY_V1, agent, agent.home)
    assert part["synthetic"] and part["type"] == "text" and part["id"].startswith("prt_") and part["messageID"] == "m1"
    assert STATEMENT in part["text"]
    assert len(stored(service)) == 2


@needs_node
@pytest.mark.thorough
def test_opencode_2_recalls_and_stores(service: ServeProcess, agent: Agent) -> None:
    agent.turn(STATEMENT, "Understood.")
    (part,) = play(PLAY_V2, agent, agent.home)
    assert part["type"] == "text" and STATEMENT in part["text"]
    assert stored(service)[2:] == [("user", QUESTION), ("assistant", "With Nomad.")]


@needs_node
@pytest.mark.parametrize("program", [PLAY_V1, PLAY_V2])
def test_opencode_goes_on_without_a_service(tmp_path: Path, program: str) -> None:
    agent = Agent(tmp_path / "home", tmp_path / "p", "http://127.0.0.1:9")
    assert play(program, agent, agent.home) == []
