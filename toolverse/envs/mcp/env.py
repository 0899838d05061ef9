"""Gymnasium's chat face of MCP servers: plays any task row."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from toolverse.checks import Referee, Verdict, Verifier
from toolverse.envs.base import ChatEnv, Opening, Outcome
from toolverse.envs.mcp import text
from toolverse.envs.mcp.engine import Stage, configured
from toolverse.envs.mcp.generator import warm_up
from toolverse.envs.mcp.types import Offered, Scene, Toolset, Transport, WorldSpec
from toolverse.envs.messages import parse_tools
from toolverse.envs.prompts import Prompt
from toolverse.errors import InvalidInputError, ServerClosedError, ServerTimeoutError
from toolverse.io import load_tasks, task_from_row
from toolverse.mcp.config import ServerConfig, read_config
from toolverse.types import JSON, Task, ToolCall, ToolSpec

WARM_UP_WORLDS = (0, 3)
"""Tasks made from a seed take place in few worlds: building one costs far more than finding another fact in it."""

DEFAULT_SERVERS = ("people", "calendar", "mail", "documents", "orders", "support")


@dataclass
class _Play:
    """One task being played. `done` counts the reference calls that were made, in their order."""

    task: Task
    toolset: Toolset
    referee: Referee
    waiting: list[tuple[str, str]]
    state_hash: str
    done: int = 0
    verdict: Verdict | None = None


@dataclass(frozen=True)
class _Script:
    """What is the same in every episode of a task on a stage. Reading it anew is half of what a reset costs."""

    task: Task
    stage: Stage
    toolset: Toolset
    prompt: Prompt


class McpEnv(ChatEnv):
    """Tools of MCP servers, a request, and milestones that say how far it got.

    An observation is the text of the tool's result. Under the default prompt kind `tools`, a message without a tool
    call is the final answer and ends the episode; under the others the action is a tool call as JSON, or the final
    answer.

    `score` is the weight of the milestones latched so far, below 1 until the episode has ended well: 1.0 exactly if
    all goals hold at the end, the answer is the expected one, and nothing else was changed. The rewards of an episode
    sum to its score (`reward="score"`), or only the last one counts (`reward="success"`: 1 on success).

    Args: task: a row, or the path of a dataset or task file, of which the seed picks one. Without it the seed makes a
        small task over `servers` (a warm-up: one fact to be found). servers: names of bundled servers, for tasks made
        from the seed. world_size: of the world of such tasks. worlds: the seeds of the worlds that such tasks take place
        in, from the first up to but not including the second; each is another company, and no id or code of one occurs in
        another. transport: how bundled servers are reached:
        `in_process`, or `stdio`, each a process of its own. config: an mcpServers file with the servers that are not
        in the catalogue; goes before what a row says. trust_launch: start the programs that a row names itself. A row
        is data, and may come from anyone. reward: `score` or `success`. max_turns: upper bound; a task may have a
        lower one.
    """

    family = "MCP"
    default_prompt = "tools"
    waits_openly = True

    def __init__(
        self,
        *,
        task: Mapping[str, Any] | str | Path | None = None,
        servers: Sequence[str] = DEFAULT_SERVERS,
        world_size: str = "mini",
        worlds: Sequence[int] = WARM_UP_WORLDS,
        transport: Transport = "in_process",
        config: str | Path | None = None,
        trust_launch: bool = False,
        reward: Literal["score", "success"] = "score",
        max_turns: int = 200,
        **settings: Any,
    ) -> None:
        super().__init__(max_turns=max_turns, **settings)
        for name, value, allowed in (
            ("transport", transport, ("in_process", "stdio")),
            ("reward", reward, ("score", "success")),
        ):
            if value not in allowed:
                raise InvalidInputError(f"unknown {name} {value!r}", where=self.family, expected=" or ".join(allowed))
        if len(worlds) != 2 or not 0 <= worlds[0] < worlds[1]:
            raise InvalidInputError(
                f"worlds={list(worlds)}",
                where=self.family,
                expected="two seeds, such as [0, 3] for the worlds 0, 1 and 2",
            )
        self._source = task
        self._servers = tuple(servers)
        self._world_size = world_size
        self._worlds = range(*worlds)
        self._transport: Transport = transport
        self._given: dict[str, ServerConfig] = read_config(config) if config is not None else {}
        self._trust_launch = trust_launch
        self._sparse = reward == "success"
        self._own_prompt = settings.get("prompt_file") is not None
        self._limit = max_turns
        self._tasks: list[Task] | None = None
        self._stage: Stage | None = None
        self._stage_owner: McpEnv | None = None
        self._play: _Play | None = None
        self._row: tuple[bytes, Task] | None = None
        self._script: _Script | None = None
        # Tasks lower max_turns; what a snapshot fits is decided by the settings alone.
        _ = self._spec_hash

    # Instances ----------------------------------------------------------------------------------------------------------

    def _begin(self, seed: int, options: Mapping[str, Any]) -> Opening:
        task = self._pick(options.get("task", self._source), seed)
        if task is None:
            world = WorldSpec(seed=self._worlds[seed % len(self._worlds)], size=self._world_size)
            scene = Scene(servers=self._servers, world=world)
            task = warm_up(self._set_stage(scene), seed)
        self._start(task)
        opening = "\n\n".join([task.instruction, *(turn.text for turn in task.turns if not turn.after_milestone)])
        return Opening(opening, task=opening, task_id=task.task_id)

    def _pick(self, source: Any, seed: int) -> Task | None:
        if source is None or isinstance(source, Task):
            return source
        if isinstance(source, Mapping):
            return self._read(source)
        if source is self._source and self._tasks is not None:
            tasks = self._tasks
        else:
            tasks = load_tasks(source)
            if source is self._source:
                self._tasks = tasks
        if not tasks:
            raise InvalidInputError("holds no tasks", where=str(source))
        return tasks[seed % len(tasks)]

    def _read(self, row: Mapping[str, Any]) -> Task:
        """The task of a row. One that comes again (the attempts of a group) is the same object."""
        if type(row) is not dict:
            # A lazy row of a table might pickle the table.
            return task_from_row(row)
        content = pickle.dumps(row)
        if self._row is None or self._row[0] != content:
            self._row = content, task_from_row(row)
        return self._row[1]

    def _start(self, task: Task) -> None:
        script = self._script
        if script is not None and script.task is task:
            stage = self._set_stage(script.stage.scene)
        else:
            stage = self._set_stage(Scene.parse(task.env_config, where=f"task {task.task_id!r}, env_config"))
        if script is None or script.task is not task or script.stage is not stage:
            toolset = _chosen(stage.toolset, task)
            policy = "\n\n".join(filter(None, [task.system_prompt or stage.briefing, task.policy]))
            prompt = text.prompt(self.prompt_kind, policy=policy, toolset=toolset)
            script = self._script = _Script(task, stage, toolset, prompt)
        self.max_turns = min(self._limit, stage.scene.max_turns or self._limit)
        referee = Referee(task.milestones, Verifier.from_json(task.verifier), stage.document)
        referee.saw_state()
        waiting = [(turn.after_milestone, turn.text) for turn in task.turns if turn.after_milestone]
        self._play = _Play(task, script.toolset, referee, waiting, stage.state_hash())
        if not self._own_prompt:
            self.prompt = script.prompt

    def _set_stage(self, scene: Scene) -> Stage:
        """The stage for a scene, at its start: the open one if it fits, else a new one."""
        if self._stage_owner is not self:
            # A clone shares its original's attributes, but not its servers.
            self._stage, self._stage_owner = None, self
        if self._stage is not None and self._stage.scene != scene:
            self._stage.close()
            self._stage = None
        if self._stage is None:
            configs = configured(scene, self._given, trust_launch=self._trust_launch)
            self._stage = Stage(scene, configs, self._transport)
        self._stage.reset()
        self.snapshot_kind = self._stage.snapshot_kind
        return self._stage

    @property
    def task(self) -> Task:
        """The task being played.

        Raises:
            InvalidInputError: before the first reset.
        """
        return self._playing.task

    @property
    def _playing(self) -> _Play:
        if self._play is None:
            raise InvalidInputError("no task is being played", where=self.family, fix="call env.reset() first")
        return self._play

    # Turns --------------------------------------------------------------------------------------------------------------

    def _act(self, command: str) -> Outcome:
        parsed = parse_tools(command)
        if parsed.error is not None:
            return self._refuse(parsed)
        if parsed.calls:
            return self._run_calls(parsed.calls)[0]
        return self._answer(parsed.answer or "")

    def _call(self, call: ToolCall) -> Outcome:
        play, stage = self._playing, self._open_stage
        offered = play.toolset.find(call.name)
        if offered is None:
            return text.unknown_tool(call.name, play.toolset)
        before = self._score()
        self._follow_reference(offered, call)
        try:
            result = stage.call(offered, call.arguments)
        except (ServerTimeoutError, ServerClosedError) as error:
            return text.no_answer(error)
        document = None if result.is_error else stage.read(offered, result)
        latched = play.referee.saw_call(offered.id, call.arguments, document, failed=result.is_error)
        if not stage.only_reads(offered):
            hash_now = stage.state_hash()
            if hash_now != play.state_hash:
                play.state_hash = hash_now
                latched += play.referee.saw_state()
        observation = "\n\n".join([result.text, *self._due(latched)])
        reward = 0.0 if self._sparse else self._score() - before
        return Outcome(observation, reward, valid=not result.is_error, milestones=latched)

    def _due(self, latched: Sequence[str]) -> list[str]:
        """What the user says now that these milestones have latched."""
        play = self._playing
        due = [words for after, words in play.waiting if after in latched]
        play.waiting = [(after, words) for after, words in play.waiting if after not in latched]
        return due

    def _answer(self, words: str) -> Outcome:
        play = self._playing
        before = self._score()
        latched = play.referee.saw_answer(words)
        play.verdict = _judged(play.task, play.referee)
        reward = float(play.verdict.success) if self._sparse else self._score() - before
        return Outcome(text.FINAL, reward, terminated=True, milestones=latched)

    def _follow_reference(self, offered: Offered, call: ToolCall) -> None:
        play = self._playing
        if play.done < len(play.task.reference):
            wanted = play.task.reference[play.done]
            if (wanted.server, wanted.tool, wanted.arguments) == (offered.server, offered.tool.name, call.arguments):
                play.done += 1

    def _expert(self) -> str | Sequence[ToolCall] | None:
        play = self._playing
        if play.done == len(play.task.reference):
            return play.task.answer or "Done."
        wanted = play.task.reference[play.done]
        offered = play.toolset.find(f"{wanted.server}.{wanted.tool}")
        if offered is None:
            return None
        call = ToolCall(name=offered.name, arguments=wanted.arguments)
        if self.prompt_kind == "tools":
            return [call]
        return json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)

    # State --------------------------------------------------------------------------------------------------------------

    @property
    def _open_stage(self) -> Stage:
        if self._stage is None:
            raise InvalidInputError("the environment is closed", where=self.family, fix="call env.reset() first")
        return self._stage

    def _score(self) -> float:
        play = self._playing
        if play.verdict is not None:
            return float(play.verdict.score)
        return min(float(play.referee.progress()), 0.99)

    def _state_hash(self) -> str:
        return self._playing.state_hash

    def _extra(self) -> dict[str, JSON]:
        verdict = self._playing.verdict
        return {"reasons": list(verdict.reasons) if verdict is not None else None}

    def _save(self) -> JSON:
        play = self._playing
        ended = play.verdict is not None
        return [
            play.task.model_dump(mode="json", exclude_defaults=True),
            self._open_stage.save(),
            play.referee.save(),
            [list(turn) for turn in play.waiting],
            play.done,
            ended,
        ]

    def _load(self, state: JSON) -> None:
        task, stage, referee, waiting, done, ended = state
        self._start(Task.parse(task))
        play = self._playing
        self._open_stage.load(stage)
        play.state_hash = self._open_stage.state_hash()
        play.referee.load(referee)
        play.waiting = [(after, words) for after, words in waiting]
        play.done = done
        if ended:
            play.verdict = _judged(play.task, play.referee)

    def _spec_settings(self) -> dict[str, JSON]:
        return {"transport": self._transport, "reward": "success" if self._sparse else "score"}

    def _tool_specs(self) -> Sequence[ToolSpec]:
        return [offered.spec for offered in self._playing.toolset.tools]

    def _default_prompt(self, kind: str) -> Prompt:
        return text.prompt(kind)

    def close(self) -> None:
        """End the servers of the episode."""
        if self._stage is not None and self._stage_owner is self:
            self._stage.close()
        self._stage = None
        super().close()


def _chosen(toolset: Toolset, task: Task) -> Toolset:
    """The tools that a task offers, in its order; all of them if it names none.

    Raises:
        InvalidInputError: a server no longer offers a tool that the task names.
    """
    if not task.tool_ids:
        return toolset
    by_id = {offered.id: offered for offered in toolset.tools}
    if missing := [name for name in task.tool_ids if name not in by_id]:
        raise InvalidInputError(
            f"the servers do not offer {', '.join(missing[:5])}",
            where=f"task {task.task_id!r}, tool_ids",
            fix="the servers have changed since the task was made: use the version in provenance.servers",
        )
    return Toolset([by_id[name] for name in task.tool_ids])


def _judged(task: Task, referee: Referee) -> Verdict:
    verdict = referee.verdict()
    asked = task.milestones or task.verifier.get("goal") or task.verifier.get("answer")
    if verdict.success and not asked:
        # Without anything to reach, whatever was done would be a success.
        return Verdict(False, 0.0, verdict.latched, ("the task asks for nothing that can be checked",))
    return verdict
